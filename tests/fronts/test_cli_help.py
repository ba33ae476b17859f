# SPDX-License-Identifier: Apache-2.0
"""What the command line answers before it has loaded anything."""

import sys
import textwrap

from tests.subprocesses import start


def test_help_and_wrong_arguments_are_answered_without_tensorflow(tmp_path):
    (tmp_path / "settings.json").write_text('{"examples": 200000, "batch-size": 8, "seed": 1}')
    answered = start([sys.executable, "-c", textwrap.dedent("""
        import sys
        from tpu_estimator_embedding import cli

        def answer(*arguments):
            try:
                status = cli.main(arguments)
            except SystemExit as exit_:
                status = exit_.code
            assert "tensorflow" not in sys.modules, arguments
            return status

        assert answer("--help") == answer("--version") == answer("run", "--help") == 0
        assert not {"numpy", "tensorboard"} & sys.modules.keys()  # `run` starts every program
        assert [answer(verb, "--help") for verb in cli.VERBS] == [0] * len(cli.VERBS)
        assert [answer(verb, "--nothing") for verb in cli.VERBS] == [2] * len(cli.VERBS)
        for wrong in (["--examples", "many"], ["--examples", "9"], ["--batch-size", "0"],
                      ["--batch-size", "9", "--model-dir", sys.argv[1]]):
            assert answer("demo", *wrong) == 2
    """), tmp_path])
    assert answered.returncode == 0, answered.stderr
    assert "`--examples` must be at least 10, got 9." in answered.stderr
    assert "`--batch-size` must be 8, with which" in answered.stderr
