# SPDX-License-Identifier: Apache-2.0
r"""Classifies sentences with an LSTM over word embeddings; exports a model for serving.

The input has a sentence per line: a label, a tab, words. Words outside of the vocabulary
are hashed into the out-of-vocabulary buckets. Shows a sequence column, `clipping_limit`, and a
SavedModel that takes sentences.

    python examples/synthetic_data.py sentences /tmp/sentences
    tpu-estimator-embedding run examples/sentence_classifier.py --use_tpu \
        --train_file=/tmp/sentences/train.tsv --dev_file=/tmp/sentences/dev.tsv \
        --vocab_file=/tmp/sentences/vocab.txt --output_dir=/tmp/sentences/model
"""

import os

import tensorflow.compat.v1 as tf

flags = tf.flags
FLAGS = flags.FLAGS

flags.DEFINE_string("train_file", None, "Sentences to train on.")
flags.DEFINE_string("dev_file", None, "Sentences to evaluate on.")
flags.DEFINE_string("vocab_file", None, "A word per line.")
flags.DEFINE_string("output_dir", None, "Model and exports.")
flags.DEFINE_string("tpu_name", None, "The TPU to use, e.g. grpc://ip.address.of.tpu:8470.")
flags.DEFINE_bool("use_tpu", False, "Whether to train on a TPU.")
flags.DEFINE_bool("do_train", True, "Whether to train.")
flags.DEFINE_bool("do_eval", True, "Whether to evaluate.")
flags.DEFINE_bool("do_export", True, "Whether to export.")
flags.DEFINE_integer("max_seq_length", 12, "Words of a sentence that are read.")
flags.DEFINE_integer("num_train_steps", 300, "Steps.")
flags.DEFINE_integer("num_warmup_steps", 20, "Steps with a growing learning rate.")
flags.DEFINE_integer("train_batch_size", 128, "Batch size.")
flags.DEFINE_float("learning_rate", 5e-3, "Peak learning rate of Adam.")

NUM_OOV_BUCKETS = 10
EMBEDDING_SIZE = 16
LSTM_UNITS = 16


def vocabulary_size():
    with tf.gfile.GFile(FLAGS.vocab_file) as reader:
        return sum(1 for _ in reader) + NUM_OOV_BUCKETS


def words_to_ids(sentences):
    """Returns a SparseTensor of int64 ids for a batch of strings."""
    table = tf.lookup.StaticVocabularyTable(
        tf.lookup.TextFileInitializer(
            FLAGS.vocab_file, tf.string, tf.lookup.TextFileIndex.WHOLE_LINE,
            tf.int64, tf.lookup.TextFileIndex.LINE_NUMBER), NUM_OOV_BUCKETS)
    words = tf.string_split(sentences)
    return tf.SparseTensor(words.indices, table.lookup(words.values), words.dense_shape)


def input_fn_builder(input_file, is_training):
    def parse_lines(lines):
        fields = tf.io.decode_csv(lines, [[0], [""]], field_delim="\t")
        return {"words": words_to_ids(fields[1])}, fields[0]

    def input_fn(params):
        dataset = tf.data.TextLineDataset(input_file)
        if is_training:
            dataset = dataset.apply(tf.data.experimental.shuffle_and_repeat(5000))
        return dataset.apply(tf.data.experimental.map_and_batch(
            lambda line: line, params["batch_size"], drop_remainder=is_training)).map(parse_lines)

    return input_fn


def serving_input_receiver_fn():
    sentences = tf.placeholder(tf.string, [None], name="sentences")
    return tf.estimator.export.ServingInputReceiver(
        {"words": words_to_ids(sentences)}, {"sentences": sentences})


def word_column():
    words = tf.feature_column.sequence_categorical_column_with_identity(
        "words", vocabulary_size())
    return tf.tpu.experimental.embedding_column(
        words, EMBEDDING_SIZE, max_sequence_length=FLAGS.max_seq_length)


def create_model(column, features, is_training):
    with tf.variable_scope("encoder"):
        sequence, lengths = tf.keras.experimental.SequenceFeatures([column])(features)
        if is_training:
            sequence = tf.nn.dropout(sequence, rate=0.1)
        mask = tf.sequence_mask(lengths, tf.shape(sequence)[1])
        encoded = tf.keras.layers.LSTM(LSTM_UNITS, name="lstm")(sequence, mask=mask)
    with tf.variable_scope("classifier"):
        hidden = tf.layers.dense(encoded, 16, tf.tanh, name="pooler")
        return tf.layers.dense(hidden, 2, name="logits")


def create_train_op(loss):
    global_step = tf.train.get_or_create_global_step()
    rate = tf.train.polynomial_decay(
        FLAGS.learning_rate, global_step, FLAGS.num_train_steps, end_learning_rate=0.0)
    step = tf.cast(global_step, tf.float32)
    rate *= tf.minimum(1.0, (step + 1) / FLAGS.num_warmup_steps)
    optimizer = tf.train.AdamOptimizer(rate)
    if FLAGS.use_tpu:
        optimizer = tf.tpu.CrossShardOptimizer(optimizer)
    variables = tf.trainable_variables()
    gradients = tf.gradients(loss, variables)
    gradients, _ = tf.clip_by_global_norm(gradients, clip_norm=1.0)
    return optimizer.apply_gradients(
        zip(gradients, variables), global_step=global_step)  # noqa: B905


def metric_fn(label_ids, logits, per_example_loss):
    predictions = tf.argmax(logits, axis=-1, output_type=tf.int32)
    return {"eval_accuracy": tf.metrics.accuracy(label_ids, predictions),
            "eval_loss": tf.metrics.mean(per_example_loss)}


def model_fn(features, labels, mode, params):
    logits = create_model(params["column"], features, mode == tf.estimator.ModeKeys.TRAIN)
    if mode == tf.estimator.ModeKeys.PREDICT:
        outputs = {"probabilities": tf.nn.softmax(logits), "label": tf.argmax(logits, axis=-1)}
        return tf.estimator.tpu.TPUEstimatorSpec(
            mode, predictions=outputs, export_outputs={
                tf.saved_model.signature_constants.DEFAULT_SERVING_SIGNATURE_DEF_KEY:
                    tf.estimator.export.PredictOutput(outputs)})
    per_example_loss = tf.nn.sparse_softmax_cross_entropy_with_logits(
        labels=labels, logits=logits)
    loss = tf.reduce_mean(per_example_loss)
    if mode == tf.estimator.ModeKeys.EVAL:
        return tf.estimator.tpu.TPUEstimatorSpec(
            mode, loss=loss, eval_metrics=(metric_fn, [labels, logits, per_example_loss]))
    return tf.estimator.tpu.TPUEstimatorSpec(mode, loss=loss, train_op=create_train_op(loss))


def create_estimator():
    tpu_cluster_resolver = None
    if FLAGS.use_tpu and FLAGS.tpu_name:
        tpu_cluster_resolver = tf.distribute.cluster_resolver.TPUClusterResolver(FLAGS.tpu_name)
    column = word_column()
    return tf.estimator.tpu.TPUEstimator(
        use_tpu=FLAGS.use_tpu, model_fn=model_fn, params={"column": column},
        config=tf.estimator.tpu.RunConfig(
            cluster=tpu_cluster_resolver, master=None, model_dir=FLAGS.output_dir,
            tf_random_seed=3, save_checkpoints_steps=1000,
            tpu_config=tf.estimator.tpu.TPUConfig(
                iterations_per_loop=1000, num_shards=None,
                per_host_input_for_training=tf.estimator.tpu.InputPipelineConfig.PER_HOST_V2)),
        train_batch_size=FLAGS.train_batch_size, eval_batch_size=100, predict_batch_size=8,
        embedding_config_spec=tf.estimator.tpu.experimental.EmbeddingConfigSpec(
            feature_columns=[column],
            optimization_parameters=tf.tpu.experimental.AdagradParameters(0.3),
            clipping_limit=1.0))


def main(_):
    tf.logging.set_verbosity(tf.logging.INFO)
    tf.gfile.MakeDirs(FLAGS.output_dir)
    estimator = create_estimator()
    if FLAGS.do_train:
        tf.logging.info("***** Running training *****")
        estimator.train(input_fn_builder(FLAGS.train_file, True),
                        max_steps=FLAGS.num_train_steps)
    if FLAGS.do_eval:
        result = estimator.evaluate(input_fn_builder(FLAGS.dev_file, False), steps=4)
        with tf.gfile.GFile(os.path.join(FLAGS.output_dir, "eval_results.txt"), "w") as writer:
            for key in sorted(result.keys()):
                tf.logging.info("  %s = %s", key, str(result[key]))
                writer.write(f"{key} = {result[key]}\n")
    if FLAGS.do_export:
        estimator.export_saved_model(
            os.path.join(FLAGS.output_dir, "export"), serving_input_receiver_fn)


if __name__ == "__main__":
    tf.disable_v2_behavior()
    flags.mark_flag_as_required("train_file")
    flags.mark_flag_as_required("vocab_file")
    flags.mark_flag_as_required("output_dir")
    tf.app.run()
