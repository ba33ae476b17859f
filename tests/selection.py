# SPDX-License-Identifier: Apache-2.0
"""Which tests a plain `pytest` runs: ten minutes of them, and which `pytest --all` adds.

A plain run has the core, which covers every front door, optimizer, command and kind of fault, and
of every other test one case, or all where these take milliseconds. Of tests that are slow it has a
share. The seed chooses cases and shares.
"""

import collections
import pathlib
import random

ROOT = pathlib.Path(__file__).parent.parent
# Marks of tests outside of the core -> of so many of these tests, a plain run has one.
SHARES = {"long": 80, "slow": 5}

# What runs on the oldest TensorFlow as well as on the newest: tests of what differs between them,
# which is TensorFlow's names, errors, graphs, estimators and Keras, and so every front door.
EVERY_TENSORFLOW = (
    "tests/fronts/compat",
    "tests/fronts/estimator",
    "tests/fronts/feature_column",
    "tests/fronts/mid_level",
    "tests/fronts/patches",
    "tests/fronts/runtime",
    "tests/fronts/error_parity",
    "tests/fronts/low_level",
    "tests/fronts/config/test_to_plan.py",
)

# What is tested before a release: pip, wheels, sites, pages in a browser, benchmarks, sanitizers.
# Only these need a browser, another Python or the network. A plain run has none of them.
RELEASE = ("tests/release",)

# What runs on the native kernels only, and is skipped where nothing can be compiled.
NATIVE = (
    "tests/fronts/cluster/test_coordinator.py",
    "tests/fronts/cluster/test_examples.py",
    "tests/fronts/cluster/test_faults.py",
    "tests/fronts/cluster/test_placement.py",
    "tests/fronts/cluster/test_synchronous.py",
    "tests/fronts/cluster/test_training.py",
    "tests/fronts/low_level/test_ops_only.py",
    "tests/programs/test_programs.py",
    "tpu_estimator_embedding/channels/channel.py",
)

# Files that take a minute for one test, because all of their programs run first. Only `--all` has
# them.
MINUTES = (
    "tests/codemod/migration/guide/test_pairs.py",
    "tests/codemod/migration/test_dlrm.py",
    "tests/codemod/migration/test_examples_verified.py",
    "tests/codemod/migration/verify/test_keras3_verified.py",
    "tests/codemod/migration/verify/test_whole_life.py",
)

# Files whose tests mostly start processes that train or compile for ten seconds and more.
# Others mark single tests.
LONG = (
    "tests/fronts/checkpoint/test_keras_rs_jax.py",
    "tests/fronts/checkpoint/test_keras_rs_sparse_cores.py",
    "tests/fronts/cluster/test_coordinator.py",
    "tests/fronts/cluster/test_examples.py",
    "tests/fronts/cluster/test_faults.py",
    "tests/fronts/cluster/test_synchronous.py",
    "tests/fronts/cluster/test_training.py",
    "tests/fronts/estimator/step/test_joined_tables.py",
    "tests/spec/engine/test_same_bits.py",
    "tests/fronts/examples/test_contrib_ranking.py",
    "tests/fronts/examples/test_hand_driven.py",
    "tests/fronts/examples/test_programs.py",
    "tests/fronts/examples/test_rating_ensemble.py",
    "tests/fronts/experiments/test_estimator_sweep.py",
    "tests/fronts/experiments/test_search.py",
    "tests/fronts/experiments/test_sweep.py",
    "tests/spec/kernels/test_malformed_ops.py",
    "tests/spec/kernels/test_sorting.py",
    "tests/fronts/mid_level/test_v2_strategies.py",
    "tests/codemod/migration/test_capture.py",
    "tests/codemod/migration/test_examples_imports.py",
    "tests/codemod/migration/test_examples_tf2.py",
    "tests/codemod/migration/test_keras3.py",
    "tests/codemod/migration/test_keras3_optimizers.py",
    "tests/codemod/migration/test_lives.py",
    "tests/codemod/migration/verify/test_verify.py",
)

# What is skipped, in whole or in part, on all but the oldest TensorFlow, whose plain run is a small
# share of the tests outside of the core.
OLDEST_TENSORFLOW = (
    "tests/fronts/compat/modules/test_restore.py::test_tensorflows_own_modules_stay_on_215",
    "tests/fronts/compat/test_legacy_keras.py::test_variable_and_keras_are_left_alone_on_215",
    "tests/fronts/config/test_to_plan.py::"
    "test_objects_of_the_installed_tensorflows_classes_are_planned",
    "tests/fronts/error_parity/test_low_level.py",
    "tests/fronts/error_parity/test_v1_classes.py",
    "tests/fronts/estimator/hooks/test_input_end.py::"
    "test_hook_that_saves_the_position_of_the_input_is_warned_of",
    "tests/fronts/estimator/test_spec_to_plan.py::test_spec_of_tensorflow_estimator_is_planned",
    "tests/fronts/low_level/test_config_proto.py",
    "tests/fronts/low_level/test_signatures.py",
    "tests/fronts/runtime/test_install.py::test_only_what_must_changes_on_215",
    "tests/fronts/test_signatures.py",
)

# Folders and files whose cases take milliseconds: a plain run has all of them.
WHOLE = (
    "tests/fronts/config",
    "tests/fronts/error_parity",
    "tests/spec/multipliers",
    "tests/spec/ops",
    "tests/spec/optimizers",
    "tests/spec/plan",
)

# What every run covers, whatever the seed: subject -> tests. Of a test with several cases it has
# all if the test is marked `all_cases`, or else one.
FRONT_DOORS = {
    "TPUEstimator, columns": "tests/fronts/estimator/test_against_oracle.py::"
                             "test_steps_with_columns_are_those_of_the_oracle",
    "TPUEstimator, dictionaries": "tests/fronts/estimator/test_against_oracle.py::"
                                  "test_steps_with_dictionaries_are_those_of_the_oracle",
    "TPUEstimator, use_tpu=False": "tests/fronts/estimator/test_without_engine.py::"
                                   "test_without_engine_everything_is_upstreams",
    "TPUEstimator, replicas": "tests/fronts/estimator/replicas/test_replicas.py::"
                              "test_replicas_compute_what_one_does",
    "TPUEstimator, hosts": "tests/fronts/estimator/test_hosts.py::"
                           "test_every_mode_gives_what_one_host_gives",
    "TPUEstimator, export": "tests/fronts/estimator/test_export.py::"
                            "test_export_serves_what_the_estimator_predicts",
    "tpu_embedding.TPUEmbedding": "tests/fronts/low_level/test_against_oracle.py::"
                                  "test_program_trains",
    "programs driven by hand": "tests/fronts/low_level/test_hand_driven.py::"
                               "test_trains_and_evaluates_as_numpy",
    "raw ops": "tests/fronts/low_level/test_ops_only.py::test_cores_and_hosts",
    "mid_level.TPUEmbedding": "tests/fronts/mid_level/test_tpu_embedding.py::"
                              "test_every_optimizer_and_input_equals_the_oracle",
    "mid_level.TPUEmbeddingV2": "tests/fronts/mid_level/test_tpu_embedding_v2.py::"
                                "test_every_optimizer_equals_the_oracle",
    "mid_level.TPUEmbeddingV0": "tests/fronts/mid_level/test_tpu_embedding_v0.py::"
                                "test_lookups_and_gradients_are_those_of_tensorflow",
    "Keras layers": "tests/fronts/mid_level/keras_layers/test_layers_beside_oracle.py::"
                    "test_layer_trains_every_optimizer_on_every_input",
    "Trainer": "tests/fronts/trainer/test_trainer.py::"
               "test_reads_and_evaluates_as_the_estimator_does",
    "cluster": "tests/fronts/cluster/test_training.py::test_tables_are_those_of_one_process",
}
COMMANDS = {
    "build-kernels": "tests/spec/kernels/test_build_command.py::"
                     "test_missing_compiler_names_what_to_install",
    "checkpoint": "tests/fronts/checkpoint/test_checkpoint_command.py::test_convert_and_back",
    "cluster": FRONT_DOORS["cluster"],
    "demo": "tests/fronts/demo/test_demo.py::test_trained_tables_beat_untrained_ones",
    "doctor": "tests/fronts/test_cli.py::test_doctor_finds_nothing_wrong",
    "migrate":
        "tests/codemod/migration/test_migrate_command.py::test_write_keeps_the_first_original",
    "plan": "tests/fronts/experiments/test_plan.py::test_plan_of_a_program_with_its_input",
    "report": "tests/fronts/experiments/test_report.py::test_page_has_curves_tables_and_versions",
    "run": "tests/fronts/test_cli.py::test_legacy_programs_train",
    "sweep": "tests/fronts/experiments/test_sweep.py::"
             "test_multiplier_1_is_the_program_as_it_is_bit_for_bit",
    "verify": "tests/codemod/migration/verify/test_verify.py::"
              "test_rewritten_program_agrees_bit_for_bit_and_writes_to_no_model_dir",
}
FAULTS = {
    "a wrong id": "tests/fronts/estimator/test_bad_input.py::"
                  "test_id_beyond_the_vocabulary_is_named_and_changes_no_table",
    "a wrong input": "tests/fronts/estimator/test_bad_input.py::"
                     "test_input_that_cannot_be_looked_up_is_refused",
    "a wrong argument": "tests/fronts/estimator/test_constructor.py::"
                        "test_argument_out_of_its_range_is_refused",
    "an exception in the input": "tests/fronts/estimator/test_iterations_per_loop.py::"
                                 "test_exception_in_the_input_comes_at_its_step",
    "a damaged checkpoint": "tests/fronts/estimator/restore/test_restore_errors.py::"
                            "test_changed_byte_names_the_checkpoint_and_the_fix",
    "a checkpoint of other tables": "tests/fronts/estimator/restore/test_restore_errors.py::"
                                    "test_other_vocabulary_names_the_command_that_helps",
    "an interrupt": "tests/fronts/estimator/hooks/test_interrupts.py::"
                    "test_interrupt_saves_the_step_and_is_raised_afterwards",
    "a killed program": "tests/fronts/estimator/restore/test_resume.py",
    "a full disk": "tests/fronts/checkpoint/test_sparse_core_layout.py::"
                   "test_a_full_disk_is_named_before_anything_is_written",
    "a malformed op": "tests/spec/engine/test_native_edges.py",
    "a lost server": "tests/fronts/estimator/recovery/test_sessions.py",
    "a call out of order": "tests/fronts/mid_level/test_order_of_calls.py",
    "no compiler": "tests/spec/kernels/test_load.py::test_native_without_compiler_is_an_error",
    "a difference of a migrated program": "tests/codemod/migration/verify/test_verify.py::"
                                          "test_results_of_evaluations_are_compared",
    "a program that the rewriter does not understand":
        "tests/codemod/migration/test_closed_world.py",
    "a training step that the rewriter does not understand":
        "tests/codemod/migration/test_closed_training.py",
    "an effect that differs in TF2": "tests/codemod/migration/test_closed_effects.py",
}
# Proved for every optimizer, combiner, partition, backend and number of replicas.
PROOFS = {
    "random programs": "tests/programs/test_programs.py",
    "random plans": "tests/spec/properties/test_random_plans.py",
    "laws of updates": "tests/spec/properties/test_updates.py",
    "every optimizer beside NumPy": "tests/spec/engine/test_optimizers.py::"
                                    "test_optimizer_equals_oracle_at_every_step",
    "every optimizer on every backend": "tests/spec/engine/test_kernels_agree.py::"
                                        "test_every_optimizer",
}
CORE = (*FRONT_DOORS.values(), *FAULTS.values(), *PROOFS.values(), *COMMANDS.values(),
        *OLDEST_TENSORFLOW)


def in_core(item) -> bool:
    """Tells whether every run has this test, by its name, file or mark."""
    return bool(item.get_closest_marker("smoke")) or any(
        item.nodeid == test or item.nodeid.startswith((f"{test}[", f"{test}::")) for test in CORE)


def needs_kernels(item) -> bool:
    """Tells whether a test runs on the native kernels only."""
    return _is_below(item, NATIVE)


def mark(items):
    """Marks tests by folder and file."""
    for item in items:
        if item.get_closest_marker("smoke") or _is_below(item, EVERY_TENSORFLOW):
            item.add_marker("every_tensorflow")
        if _is_below(item, RELEASE):
            item.add_marker("release")
        if _is_below(item, LONG):
            item.add_marker("long")
        if _is_below(item, WHOLE):
            item.add_marker("all_cases")


def _is_below(item, paths) -> bool:
    return item.nodeid.startswith(tuple(f"{path}{end}" for path in paths for end in ("/", "::")))


def of_plain_run(items, seed, share) -> set:
    """Returns one case of each test: of all the core, one in `share` of others, few slow ones."""
    rng = random.Random(seed)
    cases = [rng.choice(cases) for cases in _by_test(items).values()
             if not (cases[0].get_closest_marker("release") or _is_below(cases[0], MINUTES))]
    chosen = {case for case in cases if in_core(case)}
    others = collections.defaultdict(list)
    for case in cases:
        if case not in chosen:
            others[next(filter(case.get_closest_marker, SHARES), "")].append(case)
    for marker, marked in others.items():
        chosen |= _sample(marked, max(share, SHARES.get(marker, 1)), rng)
    return chosen


def of_full_run(items, seed, share) -> set:
    """Returns one in `share` of all tests."""
    return _sample(items, share, random.Random(seed))


def _sample(items, share, rng) -> set:
    return set(rng.sample(items, -(-len(items) // share)))


def _by_test(items) -> dict:
    """Returns lists of the items of which one suffices, under the name of their test."""
    tests = collections.defaultdict(list)
    for item in items:
        is_whole = item.get_closest_marker("smoke") or item.get_closest_marker("all_cases")
        tests[item.nodeid if is_whole else item.nodeid.partition("[")[0]].append(item)
    return tests
