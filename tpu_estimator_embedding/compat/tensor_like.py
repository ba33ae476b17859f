# SPDX-License-Identifier: Apache-2.0
"""Classes of the program that TensorFlow accepts as tensors."""


def register_dense_tensor_like_type(tensor_type: type) -> None:
    """Makes `tf.is_tensor` accept the instances of a class, as TensorFlow did up to 2.2.

    It sets `tensor_type.is_tensor_like`, which is what TensorFlow looks for since then.

    Args:
        tensor_type: a class with the properties `name`, `dtype` and `shape`.

    Raises:
        TypeError: if the class lacks one of the properties.

    >>> import tensorflow as tf
    >>> class Cast:
    ...     name = dtype = shape = property(lambda self: None)
    >>> register_dense_tensor_like_type(Cast)
    >>> tf.is_tensor(Cast())
    True
    """
    for name in ("name", "dtype", "shape"):
        if not isinstance(getattr(tensor_type, name, None), property):
            raise TypeError(
                f"Type {tensor_type.__name__} does not define a `{name}` property. Define it with "
                f"@property in the class, or in a class that it derives from.")
    tensor_type.is_tensor_like = True  # type: ignore[attr-defined]
