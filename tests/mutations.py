# SPDX-License-Identifier: Apache-2.0
"""Plants plausible one-line mistakes in the package, and shows which test finds each of them.

    python -m tests.mutations                    what a plain `pytest` finds
    python -m tests.mutations --all              what `pytest --all` finds
    python -m tests.mutations --only "mod" --jobs 2

Works in a copy of the checkout. For every mistake it runs the tests that are most likely to find
it, then all others, and stops at the first failure. The two mistakes in kernels compile them once
each. Takes an hour or more.
"""

import argparse
import collections
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from typing import NamedTuple

ROOT = pathlib.Path(__file__).parent.parent
PACKAGE = "tpu_estimator_embedding"
ENOUGH = 28  # mistakes that a plain run must find; a full one must find all
SECONDS = 3600  # after which a run of tests counts as hanging, which is a failure


class Mutation(NamedTuple):
    """A mistake: what stands in a file, what takes its place, and the tests likely to notice."""

    name: str
    file: str
    right: str
    wrong: str
    tests: tuple[str, ...]


PROOFS = ("tests/spec/engine", "tests/spec/properties")
REPLICAS = ("tests/fronts/estimator/replicas", "tests/programs")
SAVERS = ("tests/fronts/checkpoint", "tests/fronts/estimator/restore",
          "tests/fronts/estimator/test_hosts.py")
REWRITER = ("tests/codemod/migration",)

MUTATIONS = (
    # Engine.
    Mutation("one part too long", "plan/partition_strategy.py",
             "quotient + (part < remainder)", "quotient + (part <= remainder)",
             ("tests/spec/plan", *PROOFS)),
    Mutation("row of div beyond the longer parts", "plan/partition_strategy.py",
             "beyond % quotient)", "beyond % (quotient + 1))", ("tests/spec/plan", *PROOFS)),
    Mutation("sqrtn without squares", "ops/combiners.py",
             "tf.square(weights)", "tf.abs(weights)", ("tests/spec/ops", *PROOFS)),
    Mutation("id 0 is padding", "ops/sparse_ids.py",
             "tf.where(sparse_ids.ids >= 0)", "tf.where(sparse_ids.ids > 0)",
             ("tests/spec/ops", *PROOFS)),
    Mutation("sequence one position too long", "ops/sparse_ids.py",
             "tf.where(positions < length)", "tf.where(positions <= length)",
             ("tests/spec/ops", *PROOFS)),
    Mutation("pending update is dropped", "engine/delayed_update.py",
             "control_dependencies([self.apply(engine)])", "control_dependencies([self.drop()])",
             ("tests/fronts/low_level/test_against_oracle.py", "tests/fronts/mid_level/execution")),
    Mutation("multiplier of the next step", "engine/partitioned_embedding.py",
             "values_at(multipliers, step, MULTIPLIER)", "values_at(multipliers, step + 1, "
             "MULTIPLIER)", ("tests/spec/engine/test_optimizers.py", *PROOFS)),
    Mutation("gradients by feature, then by replica", "engine/stacked_activations.py",
             "for gradients in replicas for feature in plan.features_of(table.name)",
             "for feature in plan.features_of(table.name) for gradients in replicas",
             ("tests/spec/engine/test_replicas.py", *PROOFS)),
    Mutation("weights are clipped as gradients", "optimizers/row_optimizer.py",
             "clip(row, self.weight_limits)", "clip(row, self.gradient_limits)",
             ("tests/spec/engine/test_optimizers.py", *PROOFS)),
    Mutation("Adam's first moment in the second", "optimizers/adam.py",
             "(1.0 - self.beta2) * tf.square(gradient)", "(1.0 - self.beta1) * tf.square(gradient)",
             ("tests/spec/engine/test_optimizers.py", "tests/spec/optimizers")),
    Mutation("cores update by the wrong condition", "engine/native/prepared_ids.py",
             "and not table.optimizer.use_gradient_accumulation",
             "and table.optimizer.use_gradient_accumulation",
             ("tests/spec/engine/test_replicas.py", *PROOFS)),
    Mutation("piece begins a step late", "multipliers/schedules.py",
             "xp.where(step < boundary, result", "xp.where(step <= boundary, result",
             ("tests/spec/multipliers",)),
    # Replicas.
    Mutation("copies draw the numbers of the first replica", "estimator/replicas/graph_copy.py",
             'scope}/".encode() + node.attr["frame_name"].s\n    op_kinds.shift_seed(node, index)',
             'scope}/".encode() + node.attr["frame_name"].s\n    op_kinds.shift_seed(node, 0)',
             ("tests/fronts/estimator/replicas/test_graph_copy.py", *REPLICAS)),
    Mutation("ops that write are copied", "estimator/replicas/graph_copy.py",
             "op_kinds.writes(op.type) and not core_values",
             "op_kinds.writes(op.type) and core_values",
             ("tests/fronts/estimator/replicas", "tests/fronts/compat/stubs", *REPLICAS)),
    Mutation("groups sum the first replicas", "estimator/replicas/replicate_step.py",
             "[addends[replica] for replica in group]",
             "[addends[place] for place, _ in enumerate(group)]", REPLICAS),
    Mutation("loss of an evaluation is a sum", "estimator/replicas/replicate_step.py",
             'changed["loss"] = tf.reduce_mean(', 'changed["loss"] = tf.reduce_sum(', REPLICAS),
    Mutation("loop runs once more", "estimator/replicas/training_loop.py",
             "iteration, *values: iteration < n,", "iteration, *values: iteration <= n,", REPLICAS),
    Mutation("copies do not wait", "estimator/replicas/graph_copy.py",
             "source for source in op.control_inputs if source not in ops",
             "source for source in op.control_inputs if source in ops",
             ("tests/fronts/estimator/replicas/test_graph_copy.py", *REPLICAS)),
    # Savers.
    Mutation("rows are moved where they need not be", "checkpoint/saver_patches.py",
             "if not same_order(each.part.layout", "if same_order(each.part.layout", SAVERS),
    Mutation("offset of the next stored part", "checkpoint/table_layouts.py",
             "        offset += size", "        offset += len(common)", SAVERS),
    Mutation("step of two progressions", "checkpoint/table_layouts.py",
             "math.lcm(a.step, b.step)", "a.step * b.step", SAVERS),
    Mutation("files of a failed save stay", "checkpoint/failed_saves.py",
             "_left_behind(prefix) - before", "_left_behind(prefix) & before",
             ("tests/fronts/checkpoint/test_failed_saves.py", *SAVERS)),
    Mutation("order is checked where it is right", "checkpoint/saver_patches.py",
             "if not layout.is_by_id:", "if layout.is_by_id:", SAVERS),
    Mutation("border of a part behind the saved rows", "checkpoint/resizing.py",
             "border = min(max(start, self._saved.shape[0]), stop)",
             "border = min(self._saved.shape[0], stop)", SAVERS),
    # Rewriter.
    Mutation("any condition on `mode` trains", "migration/train_op.py",
             "taken is not None and taken != is_else", "taken is not None", REWRITER),
    Mutation("`!=` is read as `==`", "migration/train_op.py",
             'return "TRAIN" not in modes if', 'return "TRAIN" in modes if', REWRITER),
    Mutation("gradients used elsewhere are not seen", "migration/train_op.py",
             "if node is not applied and not holds(definition.node, node):",
             "if node is applied and not holds(definition.node, node):", REWRITER),
    Mutation("`target=` of a session is not seen", "migration/to_imports.py",
             'if given or named & {"target", "master"}:', "if given:", REWRITER),
    # Kernels.
    Mutation("ids equal to the vocabulary size", "kernels/src/check_ids.cc",
             "ids[position] < plan.vocabulary_size) ++position",
             "ids[position] <= plan.vocabulary_size) ++position",
             ("tests/spec/engine/test_bad_input.py",
              "tests/fronts/estimator/test_bad_input.py", *PROOFS)),
    Mutation("FTRL's l2 once", "kernels/src/rules.h",
             "/ rate + 2.0f * given.l2", "/ rate + given.l2",
             ("tests/spec/engine/test_kernels_agree.py", *PROOFS)),
)


class Result(NamedTuple):
    """What came of a mutation: the test that failed, or "" for none, and how long it took."""

    mutation: Mutation
    test: str
    seconds: float


class Copy:
    """A copy of the checkout, with its own caches."""

    def __init__(self, directory: pathlib.Path, seed: int, jobs: int) -> None:
        self.tree, self._seed, self._jobs = directory / "tree", seed, jobs
        names = subprocess.run(["git", "-C", ROOT, "ls-files", "-z"], capture_output=True,
                               text=True, check=True).stdout.split("\0")
        for name in filter(None, names):
            if (ROOT / name).is_file():
                (self.tree / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, self.tree / name)
        cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache")
        if (cache / PACKAGE).is_dir():  # the compiled kernels of what is not changed
            shutil.copytree(cache / PACKAGE, directory / "cache" / PACKAGE)
        self._environment = {**os.environ, "PYTHONPATH": str(self.tree),
                             "XDG_CACHE_HOME": str(directory / "cache"),
                             "TF_CPP_MIN_LOG_LEVEL": "3"}
        self._ids = directory / "ids.txt"

    def selected(self, everything: bool) -> list[str]:
        """Returns the ids of the tests of a run."""
        done = self._pytest("--collect-only", "-q", "-n", "0", *["--all"] * everything)
        if done.returncode:
            raise SystemExit(done.stdout[-2000:])
        return [line for line in done.stdout.splitlines() if "::" in line]

    def first_failure(self, tests: Iterable[str]) -> str:
        """Returns the id of a test that fails, of those given; "" if there is none."""
        self._ids.write_text("".join(f"{test}\n" for test in tests), encoding="utf-8")
        if not self._ids.stat().st_size:
            return ""
        try:
            done = self._pytest("-x", "-q", "-n", str(self._jobs), f"@{self._ids}")
        except subprocess.TimeoutExpired:
            return "(hangs)"
        if done.returncode == 0:
            return ""
        failed = re.search(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.MULTILINE)
        if done.returncode not in (1, 2) or not failed:
            raise SystemExit(f"pytest ended with {done.returncode}:\n{done.stdout[-4000:]}")
        return failed[1]

    def _pytest(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [sys.executable, "-m", "pytest", "-p", "no:cacheprovider",
             f"--hypothesis-seed={self._seed}", *arguments], cwd=self.tree, text=True,
            env=self._environment, capture_output=True, timeout=SECONDS, check=False)


def mutated(text: str, mutation: Mutation) -> str:
    """Returns the text of a file with the mistake in it.

    Raises:
        ValueError: the line is gone, or is there twice.
    """
    if text.count(mutation.right) != 1:
        raise ValueError(f"{mutation.file} must have {mutation.right!r} once, for the mutation "
                         f"{mutation.name!r}, got {text.count(mutation.right)} times. Adapt "
                         "tests/mutations.py.")
    return text.replace(mutation.right, mutation.wrong)


def results(copy: Copy, mutations: Iterable[Mutation], tests: list[str]) -> Iterator[Result]:
    """Yields the result of each mutation, in turn."""
    for mutation in mutations:
        start = time.monotonic()
        path = copy.tree / PACKAGE / mutation.file
        text = path.read_text(encoding="utf-8")
        path.write_text(mutated(text, mutation), encoding="utf-8")
        likely = [[test for test in tests if test.startswith(place)] for place in mutation.tests]
        rest = [test for test in tests if not test.startswith(mutation.tests)]
        try:
            found = next(filter(None, map(copy.first_failure, [*likely, rest])), "")
        finally:
            path.write_text(text, encoding="utf-8")
        yield Result(mutation, found, time.monotonic() - start)


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """Returns the options of the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutations", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--all", action="store_true", help="run the tests of `pytest --all`")
    parser.add_argument("--only", action="append", metavar="TEXT",
                        help="only mutations with this text in their name or file")
    parser.add_argument("--seed", type=int, default=1, help="of the selection and random cases")
    parser.add_argument("--jobs", type=int, default=0, help="processes that run tests")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    """Prints a line for each mutation; returns 1 if too few are found."""
    options = parse(arguments)
    chosen = [mutation for mutation in MUTATIONS if not options.only or any(
        text in mutation.name or text in mutation.file for text in options.only)]
    for mutation in chosen:  # before the first hour
        mutated((ROOT / PACKAGE / mutation.file).read_text(encoding="utf-8"), mutation)
    verdicts: collections.Counter[bool] = collections.Counter()
    with tempfile.TemporaryDirectory() as directory:
        copy = Copy(pathlib.Path(directory), options.seed, options.jobs)
        tests = copy.selected(options.all)
        print(f"{len(tests)} tests", flush=True)
        for mutation, test, seconds in results(copy, chosen, tests):
            verdicts[bool(test)] += 1
            print(f"{mutation.name:46} {mutation.file:38} {seconds:5.0f} s  {test or 'NOT FOUND'}",
                  flush=True)
    print(f"found {verdicts[True]} of {len(chosen)}")
    return int(verdicts[False] > (0 if options.all else len(MUTATIONS) - ENOUGH))


if __name__ == "__main__":
    sys.exit(main())
