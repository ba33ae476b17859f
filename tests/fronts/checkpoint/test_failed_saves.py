# SPDX-License-Identifier: Apache-2.0
"""A save that fails removes what it has left, and nothing of another Saver."""

import pytest
import tensorflow as tf

from tpu_estimator_embedding.checkpoint import failed_saves

OWN = ["model.ckpt-7_temp", "model.ckpt-7.meta.tmp12", "model.ckpt-7.index.tempstate34",
       "model.ckpt-7.data-00000-of-00001.tempstate5"]
OTHERS = ["model.ckpt_best-7_temp", "model.ckpt2-7.index.tempstate34", "model.ckpt-7.index",
          "model.ckpt-best-7.meta.tmp1", "model.ckpt-8_temp", "model.ckpt-8.index.tempstate34"]


@pytest.mark.parametrize("step", [7, "tensor", None])
def test_files_of_another_saver_stay(tmp_path, step):
    """Both Savers write at the same time, into one directory."""
    names = [name.replace("-7", "", 1) for name in OWN] if step is None else OWN

    class Failing(tf.compat.v1.Session):
        def run(self, fetches, *args, **kwargs):
            if fetches is number:
                return super().run(fetches, *args, **kwargs)
            for name in (*names, *OTHERS):
                (tmp_path / name).write_text("")
            raise tf.errors.ResourceExhaustedError(None, None, "No space left on device")

    with tf.Graph().as_default(), Failing() as session:
        tf.compat.v1.get_variable("v", [1])
        saver, number = tf.compat.v1.train.Saver(), tf.constant(7, tf.int64)
        with pytest.raises(tf.errors.ResourceExhaustedError):
            failed_saves.saving(tf.compat.v1.train.Saver.save)(
                saver, session, str(tmp_path / "model.ckpt"),
                global_step=number if step == "tensor" else step)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(OTHERS)
