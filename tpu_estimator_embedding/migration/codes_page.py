# SPDX-License-Identifier: Apache-2.0
"""The page of the migration guide on report codes, made from the codes that `migrate` prints.

    python -m tpu_estimator_embedding.migration.codes_page > migration_guide/report_codes.rst
"""

import textwrap
from collections.abc import Iterator

from tpu_estimator_embedding import checks
from tpu_estimator_embedding.migration.codes import CHANGED, CODES, DECISION, LEFT, NOTE

_WIDTH, _TERMINAL = 100, 80
_KINDS = {CHANGED: "a change", NOTE: "a note", DECISION: "a decision", LEFT: "left to do by hand"}
_INTRODUCTION = """\
From the checkout, this prints a report with things left to do and to decide::

    tpu-estimator-embedding migrate migration_guide/replicas/before.py --to tf2 --no-capture

``tpu-estimator-embedding migrate`` ends with a report. Each line has a location, a code, and the
details. Codes keep their meaning from release to release. This page explains each code and what to
do, as ``migrate --explain CODE`` does in a terminal. It is generated from the table that the tool
uses.

Changes and notes need no action. A decision works, but has to be confirmed. Everything else is
left to do by hand. The exit status is 2 if hand work is left, or with ``--strict`` a decision, and
0 otherwise.
"""
_NEXT = "Continue with :doc:`migration_training` and :doc:`migration_limits`."

_NOTHING = "Nothing to do."

# Code -> advice.
ADVICE = {
    "TEE101": _NOTHING + " `names.rst` lists every name and its replacement.",
    "TEE102": _NOTHING + " Star imports became imports by name.",
    "TEE103": _NOTHING + " The program uses TensorFlow 1.x, whose names are in "
              "`tensorflow.compat.v1` today.",
    "TEE104": _NOTHING + " TensorFlow 1.x builds graphs; `disable_v2_behavior()` keeps that. It "
              "has to run before anything else of TensorFlow does.",
    "TEE105": _NOTHING + " The import of this package comes before that of TensorFlow, because it "
              "chooses Keras 2.",
    "TEE106": _NOTHING + " The import is no longer used. If it had a side effect, put it back.",
    "TEE107": _NOTHING + " The string names a module or an attribute that moved.",
    "TEE108": _NOTHING + " The variable referred to a namespace that has moved; its uses were "
              "rewritten.",
    "TEE110": "Check that it is right. `--no-tf1` says that `import tensorflow` means TensorFlow "
              "2, `--tf1` that it means TensorFlow 1.x.",
    "TEE111": "Check the gin files: the names that they bind are still the old ones.",
    "TEE201": "Use what the message names. Where it names nothing, see `limits.rst`. The line "
              "stays as it was and fails where it is reached.",
    "TEE202": "Give the variable one meaning: do not bind one name to two modules, nor import it "
              "in both branches of an `if`, then run the tool again.",
    "TEE203": "Find out which names the expression may yield, and write them out, or look them up "
              "in a dictionary of this package's names.",
    "TEE204": "Rewrite the string by hand if it is a name that is imported or looked up; leave it "
              "if it is text for people.",
    "TEE205": "Import the names that the module uses by name, then run the tool again.",
    "TEE206": "Run `2to3` or `futurize` first, then the tool again.",
    "TEE207": "Fix the syntax at the line and column of the report, then run the tool again.",
    "TEE208": "Save the file as UTF-8, or declare its encoding in the first line, then run the "
              "tool again.",
    "TEE209": "If the address was that of a TPU, remove it: `tf.compat.v1.Session()`. See "
              "`replicas.rst` for replacements of cores and `hosts.rst` for several machines.",
    "TEE210": "Import `tf_keras` instead, as long as the program uses Estimators.",
    "TEE211": "Check the function that receives the module: if it uses names of the legacy API, "
    "pass it this package's names instead.",
    "TEE212": "Keep the file as it was, and start it with `tpu-estimator-embedding run`, or call "
              "`install()` at its top: feeds and loops of cores replace TensorFlow's own there, "
              "which need a TPU. In TF2, a `tf.function` that calls `mid_level.TPUEmbedding` needs "
              "no feeds.",
    "TEE213": "Import TensorFlow in the module that has the line, then run the tool again: it "
              "follows imports and plain assignments, not attributes, dictionaries, parameters, "
              "results of functions and modules of the program that pass TensorFlow on. If the "
              "value is not TensorFlow, nothing is to be done.",
    "TEE301": _NOTHING + " `embedding_config.py` builds the tables and features that the program "
              "built, which the tool has checked.",
    "TEE302": "Write the function or the initializer in `embedding_config.py`, at the place that "
              "raises NotImplementedError or has the default. An optimizer that TF2 does not have "
              "keeps the program at stage 1; see `limits.rst`.",
    "TEE303": "Run again without `--capture-steps 0`, which captures the names from one call of "
              "model_fn; or fill TABLE_VARIABLES in by hand from `checkpoint inspect`.",
    "TEE304": "Give the program the arguments with which it trains, after `--`. The TPUEstimator "
    "has to be constructed in the process that was started.",
    "TEE305": "Please report it with the program. Correct `embedding_config.py` by hand until its "
              "plan is the one that the message shows.",
    "TEE306": "Nothing to do, unless you need the setting: the results are the same.",
    "TEE307": "`embedding_config.py` has the value that the program had in the captured run. "
              "Decide whether it is the one to keep, or write the expression there by hand.",
    "TEE308": "Run the tool again with `--capture`. Without `embedding_config.py` the program does "
              "not start, and the settings of its tables are lost.",
    "TEE309": "The TF2 classes and Keras RS look up what the embedding engine does. Look such a "
              "feature up in the forward pass, in a variable that the model's optimizer trains, or "
              "give its column `embedding_lookup_device='tpu_embedding_core'` and an optimizer of "
              "tables first. Stage 1 keeps it as it is.",
    "TEE401": "Read the training step once. See `columns.rst`.",
    "TEE402": "The module is at stage 1. Change what the message names, then run the tool again; "
              "`training.rst` has the shapes that it follows, and the classes to write for others. "
              "Or write the training step by hand, as the pages of this guide do.",
    "TEE403": _NOTHING,
    "TEE404": "Write the part by hand at the mark in the program: `evaluation.rst` for metrics and "
              "hooks, `export.rst` for exports, `summaries.rst` for host_call, `checkpoints.rst` "
              "for scaffold_fn and warm starts.",
    "TEE405": "Decide whether the difference matters. `replicas.rst` and `limits.rst` give its "
              "size.",
    "TEE406": "Decide whether the difference that the message states matters. Without "
              "`--dense-optimizer keras` the legacy optimizer stays, bit for bit.",
    "TEE407": "The module is at stage 1. Run again without `--dense-optimizer keras`, which keeps "
              "the legacy optimizer, or change the optimizer first and compare the training.",
    "TEE408": "Decide whether the argument matters. `arguments.rst` has every argument of the "
              "Estimator's constructors, with what becomes of it.",
    "TEE409": "The forward pass keeps the line, which does something else in TF2 than in the "
              "Estimator, or fails. Do what the message says.",
    "TEE410": "The tool accepts only code that it knows in full. Check that what the message names "
              "only computes its result, or makes variables by their names. Anything else, such as "
              "assignments, has to be written in the training step.",
    "TEE411": "Decide whether other random numbers matter: no run of the new program repeats one "
              "of the legacy program. Only initializers with a `seed` give the same initial "
              "values, and not in Keras 3, which draws other values from the same seed; random "
              "numbers of a step are the same only until the program is started again. To "
              "compare two runs, start the new one from a checkpoint of the legacy program, as "
              "`verify` does; of the initial values that both draw by themselves, it "
              "compares mean and standard deviation. Without `tf_random_seed` the legacy "
              "program draws other initial values in every run where initializers have no seed, "
              "and nothing is reported for those.",
    "TEE502": "Decide whether the difference matters. `jax.rst` has a table of differences.",
    "TEE503": "Stay at stage 2 for this part, or write it by hand: `limits.rst` has alternatives.",
}


def explanation(name: str) -> str:
    """Returns what a code means and what to do, for a terminal.

    Raises:
        ValueError: if there is no such code.
    """
    code = CODES.get(name.upper())
    if code is None:
        raise ValueError(checks.complaint("--explain", "a code of the report, such as TEE201",
                                          name))
    text = f"{code.title} ({_KINDS[code.kind]}). {ADVICE[code.name]}"
    return "\n".join((code.name, *textwrap.wrap(text, _TERMINAL, break_on_hyphens=False)))


def lines() -> Iterator[str]:
    """Yields the page: a section for each code."""
    yield from _section("Report codes", "=")
    yield from (*_INTRODUCTION.splitlines(), "")
    for name, code in CODES.items():
        yield from (f".. _{name.lower()}:", "")
        yield from _section(name, "-")
        text = f"**{code.title}** ({_KINDS[code.kind]}). {ADVICE[name]}".replace("`", "``")
        yield from (*textwrap.wrap(text, _WIDTH, break_on_hyphens=False), "")
    yield from (_NEXT, "")


def _section(title: str, character: str) -> tuple[str, str, str]:
    return title, character * len(title), ""


if __name__ == "__main__":
    print("\n".join(lines()), end="")
