# SPDX-License-Identifier: Apache-2.0
"""Optimizers of `tf.contrib.opt` that TensorFlow and tf-slim lack."""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import tensorflow as tf

from tpu_estimator_embedding.compat.contrib import restoring
from tpu_estimator_embedding.types import Tensor

v1 = tf.compat.v1
_Number = float | Tensor
_Gradient: TypeAlias = Tensor | tf.IndexedSlices | None
_GradientsAndVariables = Iterable[tuple[_Gradient, tf.Variable]]


class DecoupledWeightDecayExtension(tf.compat.v1.train.Optimizer):
    """A base of optimizers whose update first shrinks the weights.

    Each update is `w := w - weight_decay * w`, and then the update of the other base class. The
    gradient of `w` is the one before the decay. Only the gathered rows of a variable decay.

    Source: Loshchilov, Hutter: Decoupled Weight Decay Regularization,
    https://arxiv.org/abs/1711.05101, 2019.

    Args:
        weight_decay: the factor, a number or a tensor. A schedule of the learning rate does not
            change it.
        **kwargs: the arguments of the other base class.
    """

    def __init__(self, weight_decay: _Number, **kwargs: Any) -> None:
        self._decayed: set[Hashable] | None = None  # references of variables; None means all
        self._weight_decay = weight_decay
        super().__init__(**kwargs)

    def minimize(self, loss: Tensor, *args: Any,
                 decay_var_list: Iterable[tf.Variable] | None = None,
                 **kwargs: Any) -> tf.Operation:
        """Minimizes a loss; only the variables in `decay_var_list` decay, by default all."""
        self._select(decay_var_list)
        return super().minimize(loss, *args, **kwargs)

    def apply_gradients(self, grads_and_vars: _GradientsAndVariables,
                        global_step: tf.Variable | None = None, name: str | None = None,
                        decay_var_list: Iterable[tf.Variable] | None = None) -> tf.Operation:
        """Applies gradients; only the variables in `decay_var_list` decay, by default all."""
        self._select(decay_var_list)
        return super().apply_gradients(grads_and_vars, global_step, name)

    def _select(self, variables: Iterable[tf.Variable] | None) -> None:
        if variables:
            self._decayed = {variable.ref() for variable in variables}

    def _decay(self, gradient: Tensor, variable: tf.Variable,
               rows: Tensor | None = None) -> list[tf.Operation | Tensor]:
        if self._decayed is not None and variable.ref() not in self._decayed:
            return []
        factor = tf.cast(self._weight_decay, variable.dtype.base_dtype)
        with tf.control_dependencies([gradient]):  # which is that of the weights before the decay
            if rows is None:
                return [v1.assign_sub(variable, factor * variable)]
            return [v1.scatter_sub(variable, rows, factor * tf.gather(variable, rows))]

    def _apply_dense(self, grad: Tensor, var: tf.Variable) -> tf.Operation:
        with tf.control_dependencies(self._decay(grad, var)):
            return super()._apply_dense(grad, var)

    def _resource_apply_dense(self, grad: Tensor, var: tf.Variable) -> tf.Operation:
        with tf.control_dependencies(self._decay(grad, var)):
            return super()._resource_apply_dense(grad, var)

    def _apply_sparse(self, grad: tf.IndexedSlices, var: tf.Variable) -> tf.Operation:
        with tf.control_dependencies(self._decay(grad.values, var, grad.indices)):
            return super()._apply_sparse(grad, var)

    def _resource_apply_sparse(self, grad: Tensor, var: tf.Variable,
                               indices: Tensor) -> tf.Operation:
        with tf.control_dependencies(self._decay(grad, var, indices)):
            return super()._resource_apply_sparse(grad, var, indices)


def extend_with_decoupled_weight_decay(
        base_optimizer: type) -> type[DecoupledWeightDecayExtension]:
    """Returns a subclass of an optimizer of `tf.train`, with weight decay as first argument.

    >>> sgd = extend_with_decoupled_weight_decay(tf.compat.v1.train.GradientDescentOptimizer)
    >>> sgd(weight_decay=0.01, learning_rate=0.1).get_name()
    'GradientDescent'
    """
    return type(f"{base_optimizer.__name__}WithDecoupledWeightDecay",
                (DecoupledWeightDecayExtension, base_optimizer),
                {"__doc__": "A base optimizer after a decay of the weights."})


class AdamWOptimizer(DecoupledWeightDecayExtension, tf.compat.v1.train.AdamOptimizer):
    """Adam with decoupled weight decay; see DecoupledWeightDecayExtension."""

    def __init__(self, weight_decay: _Number, learning_rate: _Number = 0.001,
                 beta1: _Number = 0.9, beta2: _Number = 0.999, epsilon: _Number = 1e-8,
                 use_locking: bool = False,
                 name: str = "AdamW") -> None:
        super().__init__(weight_decay, learning_rate=learning_rate, beta1=beta1, beta2=beta2,
                         epsilon=epsilon, use_locking=use_locking, name=name)


class MomentumWOptimizer(DecoupledWeightDecayExtension, tf.compat.v1.train.MomentumOptimizer):
    """Momentum with decoupled weight decay; see DecoupledWeightDecayExtension."""

    def __init__(self, weight_decay: _Number, learning_rate: _Number, momentum: _Number,
                 use_locking: bool = False, name: str = "MomentumW",
                 use_nesterov: bool = False) -> None:
        super().__init__(weight_decay, learning_rate=learning_rate, momentum=momentum,
                         use_locking=use_locking, name=name, use_nesterov=use_nesterov)


class LazyAdamOptimizer(tf.compat.v1.train.AdamOptimizer):
    """Adam that leaves rows without a gradient unchanged, and their moments.

    For the rows with a gradient g, summed over equal indices:

        m := beta1 * m + (1 - beta1) * g
        v := beta2 * v + (1 - beta2) * g²
        w := w - learning_rate * sqrt(1 - beta2^t) / (1 - beta1^t) * m / (sqrt(v) + epsilon)

    Dense gradients have the update of Adam.
    """

    def _apply_sparse(self, grad: tf.IndexedSlices, var: tf.Variable) -> tf.Operation:
        return self._update_rows(grad.values, var, grad.indices)

    def _resource_apply_sparse(self, grad: Tensor, var: tf.Variable,
                               indices: Tensor) -> tf.Operation:
        return self._update_rows(grad, var, indices)

    def _update_rows(self, gradient: Tensor, variable: tf.Variable, rows: Tensor) -> tf.Operation:
        rate, beta1, beta2, epsilon = _adam_numbers(self, variable)
        slots = [self.get_slot(variable, name) for name in ("m", "v")]
        first = beta1 * tf.gather(slots[0], rows) + (1 - beta1) * gradient
        second = beta2 * tf.gather(slots[1], rows) + (1 - beta2) * tf.square(gradient)
        return tf.group(
            v1.scatter_update(slots[0], rows, first), v1.scatter_update(slots[1], rows, second),
            v1.scatter_sub(variable, rows, rate * first / (tf.sqrt(second) + epsilon)))


class NadamOptimizer(tf.compat.v1.train.AdamOptimizer):
    """Adam with Nesterov's momentum, for dense gradients.

        m := beta1 * m + (1 - beta1) * g
        v := beta2 * v + (1 - beta2) * g²
        w := w - learning_rate * sqrt(1 - beta2^t) / (1 - beta1^t)
                 * (beta1 * m + (1 - beta1) * g) / (sqrt(v) + epsilon)

    A variable that is looked up by rows has a sparse gradient, which raises NotImplementedError.
    """

    def _apply_dense(self, grad: Tensor, var: tf.Variable) -> tf.Operation:
        rate, beta1, beta2, epsilon = _adam_numbers(self, var)
        m, v = (self.get_slot(var, name) for name in ("m", "v"))
        first = v1.assign(m, beta1 * m + (1 - beta1) * grad)
        second = v1.assign(v, beta2 * v + (1 - beta2) * tf.square(grad))
        ahead = beta1 * first + (1 - beta1) * grad
        return v1.assign_sub(var, rate * ahead / (tf.sqrt(second) + epsilon)).op

    _resource_apply_dense = _apply_dense

    def _apply_sparse(self, grad: tf.IndexedSlices, var: tf.Variable) -> tf.Operation:
        raise NotImplementedError(
            f"Variable {var.name!r} is looked up by rows, so its gradient is sparse, which "
            "NadamOptimizer does not support. Use LazyAdamOptimizer or tf.train.AdamOptimizer.")

    def _resource_apply_sparse(self, grad: Tensor, var: tf.Variable,
                               indices: Tensor) -> tf.Operation:
        return self._apply_sparse(tf.IndexedSlices(grad, indices), var)


def _adam_numbers(optimizer: tf.compat.v1.train.AdamOptimizer,
                  variable: tf.Variable) -> tuple[Tensor, ...]:
    """Returns learning rate with bias correction, beta1, beta2 and epsilon."""
    dtype = variable.dtype.base_dtype
    rate, beta1, beta2, epsilon, power1, power2 = (tf.cast(value, dtype) for value in (
        optimizer._lr_t, optimizer._beta1_t, optimizer._beta2_t, optimizer._epsilon_t,
        *optimizer._get_beta_accumulators()))
    return rate * tf.sqrt(1 - power2) / (1 - power1), beta1, beta2, epsilon


class LARSOptimizer(tf.compat.v1.train.MomentumOptimizer):
    """Momentum with a learning rate per layer, for large batches.

        rate := learning_rate * eeta * |w| / (|g| + weight_decay * |w| + epsilon)
        accumulator := momentum * accumulator + g + weight_decay * w
        w := w - rate * accumulator

    Where |w| or |g| is 0, rate is the learning rate. Sparse gradients have the update of momentum.

    Source: You, Gitman, Ginsburg: Large Batch Training of Convolutional Networks,
    https://arxiv.org/abs/1708.03888, 2017.

    Args:
        learning_rate: a number or a tensor.
        momentum: decay of the accumulator.
        weight_decay: factor of the weights that are added to the gradient.
        eeta: the trust coefficient.
        epsilon: is added to the denominator.
        name: name of the optimizer and prefix of the slots.
        skip_list: parts of names; variables with one of them have the update of momentum.
        use_nesterov: whether to use Nesterov's momentum, w - rate * (g + momentum * accumulator).

    Raises:
        ValueError: if momentum is negative.
    """

    def __init__(self, learning_rate: _Number, momentum: float = 0.9, weight_decay: float = 0.0001,
                 eeta: float = 0.001, epsilon: float = 0.0, name: str = "LARSOptimizer",
                 skip_list: Sequence[str] | None = None, use_nesterov: bool = False) -> None:
        if momentum < 0:
            raise ValueError(f"momentum should be positive: {momentum}")
        super().__init__(learning_rate, momentum, name=name, use_nesterov=use_nesterov)
        self._weight_decay, self._eeta, self._epsilon = weight_decay, eeta, epsilon
        self._skip_list = tuple(skip_list or ())

    def _apply_dense(self, grad: Tensor, var: tf.Variable) -> tf.Operation:
        dtype = var.dtype.base_dtype
        rate, momentum = (tf.cast(value, dtype) for value in (
            self._learning_rate_tensor, self._momentum_tensor))
        if not any(part in var.name for part in self._skip_list):
            rate *= self._trust(tf.norm(var), tf.norm(grad))
            grad += self._weight_decay * var
        slot = self.get_slot(var, "momentum")
        accumulator = v1.assign(slot, momentum * slot + grad)
        step = grad + momentum * accumulator if self._use_nesterov else accumulator
        return v1.assign_sub(var, rate * step).op

    _resource_apply_dense = _apply_dense

    def _trust(self, weights: Tensor, gradient: Tensor) -> Tensor:
        ratio = self._eeta * weights / (gradient + self._weight_decay * weights + self._epsilon)
        return tf.where((weights > 0) & (gradient > 0), ratio, tf.ones_like(ratio))


class MovingAverageOptimizer(tf.compat.v1.train.Optimizer):
    """Another optimizer, and an exponential moving average of each variable after its updates.

    A checkpoint of `swapping_saver` has the averages instead of the variables, so that an
    evaluation with an ordinary saver measures the averages.

    Args:
        opt: the optimizer.
        average_decay: decay of the averages.
        num_updates: number of updates, which limits the decay to (1 + n) / (10 + n); None means
            no limit.
        sequential_update: whether the averages are of the values after the update of the step.
            If false, they may be of the values before it.
    """

    def __init__(self, opt: tf.compat.v1.train.Optimizer, average_decay: _Number = 0.9999,
                 num_updates: int | Tensor | None = None, sequential_update: bool = True) -> None:
        super().__init__(False, "MovingAverageOptimizer")
        self._optimizer = opt
        self._averages = tf.train.ExponentialMovingAverage(average_decay, num_updates)
        self._is_sequential = sequential_update
        self._swapped: dict[str, str] | None = None

    def compute_gradients(self, *args: Any,
                          **kwargs: Any) -> list[tuple[_Gradient, tf.Variable]]:
        """Returns what `compute_gradients` of the other optimizer returns."""
        return self._optimizer.compute_gradients(*args, **kwargs)

    def apply_gradients(self, grads_and_vars: _GradientsAndVariables,
                        global_step: tf.Variable | None = None,
                        name: str | None = None) -> tf.Operation:
        """Updates the variables, and then their averages."""
        pairs = list(grads_and_vars)
        variables = [variable for gradient, variable in pairs if gradient is not None]
        update = self._optimizer.apply_gradients(pairs, global_step, name)
        with tf.control_dependencies([update] if self._is_sequential else []):
            average = self._averages.apply(variables)
        names = {variable.op.name: self._averages.average(variable).op.name
                 for variable in variables}
        self._swapped = names | {average: name for name, average in names.items()}
        return tf.group(update, average, name="train_with_avg")

    def swapping_saver(self,
                       var_list: Sequence[tf.Variable] | Mapping[str, tf.Variable] | None = None,
                       name: str = "swapping_saver", **kwargs: Any) -> tf.compat.v1.train.Saver:
        """Returns a saver that exchanges the names of the variables and of their averages.

        Args:
            var_list: variables, or name in the checkpoint -> variable; by default all.
            name: name of the ops.
            **kwargs: further arguments of `tf.train.Saver`.

        Raises:
            RuntimeError: if `apply_gradients` or `minimize` was not called before.
            ValueError: if `var_list` has a variable without its average, or the reverse.
        """
        if self._swapped is None:
            raise RuntimeError("Must call apply_gradients or minimize before creating the "
                               "swapping_saver")
        wanted = v1.global_variables() if var_list is None else var_list
        if not isinstance(wanted, Mapping):
            wanted = {restoring.name_in_checkpoint(variable): variable for variable in wanted}
        saved = {}
        for key, variable in wanted.items():
            swapped = self._swapped.get(key, key)
            if swapped not in wanted:
                raise ValueError(f"Variable to swap {swapped} is not in variables to save. Add it "
                                 f"to `var_list`, which has {key}.")
            saved[swapped] = variable
        return v1.train.Saver(saved, name=name, **kwargs)
