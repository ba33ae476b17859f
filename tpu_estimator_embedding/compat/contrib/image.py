# SPDX-License-Identifier: Apache-2.0
"""`tf.contrib.image`: projective transforms of images, which AutoAugment policies use.

A transform `[a0, a1, a2, b0, b1, b2, c0, c1]` fills the pixel (x, y) of the output with the pixel
of the input at ((a0 x + a1 y + a2) / k, (b0 x + b1 y + b2) / k), where k = c0 x + c1 y + 1. It is 0
if that is outside of the input.
"""

from typing import Any

import tensorflow as tf

from tpu_estimator_embedding.types import Tensor


def transform(images: Any, transforms: Any, interpolation: str = "NEAREST",
              output_shape: object = None, name: str | None = None) -> Tensor:
    """Applies projective transforms.

    Args:
        images: `[batch, height, width, channels]`, `[height, width, channels]` or
            `[height, width]`.
        transforms: `[batch, 8]`, or `[8]` for all images.
        interpolation: "NEAREST" or "BILINEAR".
        output_shape: `[height, width]` of the result; by default that of the images.
        name: name of the op.

    Raises:
        TypeError: if the rank of `images` or `transforms` is not one of these.
        ValueError: if `interpolation` is not one of these.
    """
    if interpolation not in ("NEAREST", "BILINEAR"):
        raise ValueError(f"`interpolation` must be 'NEAREST' or 'BILINEAR', got {interpolation!r}.")
    with tf.name_scope(name or "transform"):
        images = tf.convert_to_tensor(images)
        transforms = tf.convert_to_tensor(transforms, tf.float32)
        if transforms.shape.rank not in (1, 2):
            raise TypeError("Transforms should have rank 1 or 2, but got rank "
                            f"{transforms.shape.rank}")
        batch = _batch(images)
        shape = tf.shape(batch)[1:3] if output_shape is None else tf.convert_to_tensor(
            output_shape, tf.int32)
        result = tf.raw_ops.ImageProjectiveTransformV2(
            images=batch, transforms=tf.reshape(transforms, [-1, 8]), output_shape=shape,
            interpolation=interpolation)
        height, width = tf.get_static_value(shape) if output_shape is not None else (
            batch.shape[1:3])
        result.set_shape([batch.shape[0], height, width, batch.shape[3]])
        return {2: lambda: result[0, :, :, 0], 3: lambda: result[0], 4: lambda: result}[
            images.shape.rank]()


def rotate(images: Any, angles: object, interpolation: str = "NEAREST",
           name: str | None = None) -> Tensor:
    """Rotates images counterclockwise by angles in radians, a scalar or `[batch]`."""
    with tf.name_scope(name or "rotate"):
        images = tf.convert_to_tensor(images)
        height, width = tf.unstack(tf.cast(tf.shape(_batch(images))[1:3], tf.float32))
        return transform(images, angles_to_projective_transforms(angles, height, width),
                         interpolation)


def translate(images: object, translations: object, interpolation: str = "NEAREST",
              name: str | None = None) -> Tensor:
    """Moves images by (dx, dy), `[2]` or `[batch, 2]`, to the right and down."""
    with tf.name_scope(name or "translate"):
        return transform(images, translations_to_projective_transforms(translations),
                         interpolation)


def angles_to_projective_transforms(angles: object, image_height: object, image_width: object,
                                    name: str | None = None) -> Tensor:
    """Returns the transforms, `[batch, 8]`, that rotate around the center of an image."""
    with tf.name_scope(name or "angles_to_projective_transforms"):
        angles = tf.reshape(tf.convert_to_tensor(angles, tf.float32), [-1])
        right, bottom = (tf.cast(size, tf.float32) - 1 for size in (image_width, image_height))
        sine, cosine = tf.sin(angles), tf.cos(angles)
        x_offset = (right - (cosine * right - sine * bottom)) / 2
        y_offset = (bottom - (sine * right + cosine * bottom)) / 2
        zeros = tf.zeros_like(angles)
        return tf.stack([cosine, -sine, x_offset, sine, cosine, y_offset, zeros, zeros], axis=1)


def translations_to_projective_transforms(translations: object, name: str | None = None) -> Tensor:
    """Returns the transforms, `[batch, 8]`, that move by (dx, dy)."""
    with tf.name_scope(name or "translations_to_projective_transforms"):
        moves = tf.reshape(tf.convert_to_tensor(translations, tf.float32), [-1, 2])
        ones, zeros = tf.ones_like(moves[:, 0]), tf.zeros_like(moves[:, 0])
        return tf.stack([ones, zeros, -moves[:, 0], zeros, ones, -moves[:, 1], zeros, zeros],
                        axis=1)


def compose_transforms(*transforms: object) -> Tensor:
    """Returns the transforms, `[batch, 8]`, whose matrices are the products of the given ones."""
    if not transforms:
        raise ValueError("`transforms` must have at least one transform, got none.")
    product = flat_transforms_to_matrices(transforms[0])
    for factor in transforms[1:]:
        product = product @ flat_transforms_to_matrices(factor)
    return matrices_to_flat_transforms(product)


def flat_transforms_to_matrices(transforms: object) -> Tensor:
    """Returns the matrices, `[batch, 3, 3]`, of transforms `[batch, 8]` or `[8]`."""
    flat = tf.reshape(tf.convert_to_tensor(transforms, tf.float32), [-1, 8])
    return tf.reshape(tf.concat([flat, tf.ones_like(flat[:, :1])], axis=1), [-1, 3, 3])


def matrices_to_flat_transforms(transform_matrices: object) -> Tensor:
    """Returns the transforms, `[batch, 8]`, of matrices `[batch, 3, 3]` or `[3, 3]`."""
    flat = tf.reshape(tf.convert_to_tensor(transform_matrices, tf.float32), [-1, 9])
    return (flat / flat[:, 8:])[:, :8]


def _batch(images: Tensor) -> Tensor:
    """Returns images as `[batch, height, width, channels]`."""
    if images.shape.rank not in (2, 3, 4):
        raise TypeError("Images should have rank between 2 and 4.")
    if images.shape.rank == 2:
        return images[None, :, :, None]
    return images[None] if images.shape.rank == 3 else images
