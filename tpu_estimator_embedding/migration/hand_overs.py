# SPDX-License-Identifier: Apache-2.0
"""Parts of an Estimator program that have to be written by hand in TF2."""

# Call -> advice.
OF_CALL = {
    "train_and_evaluate": "write a loop of Trainer.train and Trainer.evaluate",
    "export_saved_model": "give a tf.function around Trainer.forward to tf.saved_model.save",
    "export_savedmodel": "give a tf.function around Trainer.forward to tf.saved_model.save",
    "WarmStartSettings": "call Trainer.restore_estimator_checkpoint",
    "get_regularization_loss": "it is 0 here; add the losses of the layers to the loss",
    "get_regularization_losses": "they are empty here; add the losses of the layers",
    "get_total_loss": "it lacks regularization losses here; add the losses by hand",
    "make_one_shot_iterator": "return the tf.data.Dataset itself",
    "make_initializable_iterator": "return the tf.data.Dataset itself",
    "batch_norm": "of tf.contrib.layers: use tf.layers.batch_normalization",
}

# Argument of TPUEstimatorSpec -> what to do.
OF_SPEC = {
    "host_call": "call its function after train_step, with the tensors",
    "scaffold_fn": "do what it does after Trainer was made",
    "training_hooks": "write them into Trainer.train",
    "evaluation_hooks": "write them into Trainer.evaluate",
    "prediction_hooks": "write them into Trainer.predict",
    "export_outputs": "they become the results of an exported tf.function",
}
