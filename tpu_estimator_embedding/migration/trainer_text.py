# SPDX-License-Identifier: Apache-2.0
"""The parts of the class Trainer that several stages share."""

import string

CONSTRUCTOR = '''\
    def __init__(self, model_fn, params=None, model_dir=None, train_batch_size=None,
                 eval_batch_size=None, predict_batch_size=None, save_checkpoints_steps=1000,
                 keep_checkpoint_max=5):
        self.model_dir = model_dir
        self.params = {**(params or {}), "use_tpu": True}
        self.batch_sizes = {ModeKeys.TRAIN: train_batch_size, ModeKeys.EVAL: eval_batch_size,
                            ModeKeys.PREDICT: predict_batch_size}
        self.save_checkpoints_steps = save_checkpoints_steps
        self.keep_checkpoint_max = keep_checkpoint_max
'''

TRAIN = '''\
    def train(self, input_fn, steps=None, max_steps=None):
        """Trains for `steps` steps, or up to step `max_steps`."""
        batches = iter(self._dataset(input_fn, ModeKeys.TRAIN))
        self._build(next(iter(self._dataset(input_fn, ModeKeys.TRAIN))))
        stop = max_steps if steps is None else int(self.global_step.numpy()) + steps
        for features, labels in batches:
            if stop is not None and self.global_step.numpy() >= stop:
                break
            loss = self.train_step(features, labels)
            if int(self.global_step.numpy()) % self.save_checkpoints_steps == 0:
                self._save(loss)
        self._save()

'''

_EVALUATE_AND_PREDICT = string.Template('''\
    def evaluate(self, input_fn, steps=None, name=None):
        """Returns the mean loss, the metrics of metric functions, and the step."""
        losses, batches, metric_fn = [], [], None
        for features, labels in self._dataset(input_fn, ModeKeys.EVAL).take(steps or -1):
            outputs = $outputs(features, labels, ModeKeys.EVAL)
            losses.append(float(outputs.loss))
            if outputs.eval_metrics is not None:
                metric_fn, tensors = outputs.eval_metrics
                batches.append(tf_v2.nest.map_structure(lambda value: value.numpy(), tensors))
        metrics = _metrics(metric_fn, batches) if batches else {}
        return {**metrics, "loss": sum(losses) / len(losses),
                "global_step": int($global_step.numpy())}

    def predict(self, input_fn):
        """Yields the predictions of every sample."""
        for features, labels in self._dataset(input_fn, ModeKeys.PREDICT):
            outputs = $outputs(features, labels, ModeKeys.PREDICT)
            arrays = {name: value.numpy() for name, value in outputs.predictions.items()}
            for row in range(len(next(iter(arrays.values())))):
                yield {name: array[row] for name, array in arrays.items()}

''')

DATASET = '''\
    def _dataset(self, input_fn, mode):
        dataset = input_fn({**self.params, "batch_size": self.batch_sizes[mode]})
        if not isinstance(dataset, tf_v2.data.Dataset):
            raise TypeError("input_fn must return a tf.data.Dataset, got "
                            f"{type(dataset).__name__}: hand-over.")
        if isinstance(dataset.element_spec, tuple):
            return dataset
        return dataset.map(lambda features: (features, ()))

'''

# The end of `_build`, and the method that saves.
CHECKPOINTS = '''\
        if self.model_dir:
            self.manager = tf_v2.train.CheckpointManager(
                self.checkpoint, self.model_dir, self.keep_checkpoint_max)
            if self.manager.latest_checkpoint:
                self.checkpoint.restore(self.manager.latest_checkpoint).assert_consumed()

    def _save(self, loss=None):
        if self.model_dir:
            self.manager.save(checkpoint_number=int(self.global_step.numpy()))
        if loss is not None:
            print(f"step {int(self.global_step.numpy())}: loss {float(loss):.6g}")

'''


def evaluate_and_predict(outputs: str, global_step: str = "self.global_step") -> str:
    """Returns the methods `evaluate` and `predict`.

    Args:
        outputs: the method that returns the outputs of the forward pass.
        global_step: the variable of the global step.
    """
    return _EVALUATE_AND_PREDICT.substitute(outputs=outputs, global_step=global_step)
