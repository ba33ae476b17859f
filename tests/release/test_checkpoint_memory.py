# SPDX-License-Identifier: Apache-2.0
"""The tools need neither TensorFlow nor memory for a table: each in its own process.

The table has 512 MiB, and 4 GiB with `-m soak`, which needs 35 GB of disk.
"""

import json
import shutil
import sys
import textwrap

import pytest

from tests.subprocesses import start

SIZES = [512, pytest.param(4096, marks=pytest.mark.soak)]  # MiB
LIMIT = 256 << 20  # bytes of growth

# The high-water mark of this process alone; that of getrusage is inherited.
PRELUDE = """
    import re, sys
    import numpy as np
    import pyarrow.parquet
    from tpu_estimator_embedding import cli
    from tpu_estimator_embedding.checkpoint import (  # all that the tools load
        command, comparison, conversion, extraction, inspection)
    from tpu_estimator_embedding.checkpoint import report

    def peak():
        status = open("/proc/self/status").read()
        return int(re.search(r"VmHWM:\\s+(\\d+) kB", status)[1]) << 10

    def run(*arguments):
        before = peak()
        status = cli.main(["checkpoint", *arguments])
        print("growth", peak() - before)
        assert "tensorflow" not in sys.modules
        sys.exit(status)
"""

GENERATE = PRELUDE + """
    from tpu_estimator_embedding.checkpoint.bundle import write_bundle
    from tpu_estimator_embedding.checkpoint.stored_tensor import ArrayTensor, StoredTensor
    from tpu_estimator_embedding.checkpoint.table_layouts import TableLayout
    import pathlib

    class Rows(StoredTensor):
        def read_rows(self, start, stop):
            return np.repeat(np.arange(start, stop, dtype=np.float32)[:, None], self.shape[1], 1)

    rows = int(sys.argv[2])
    write_bundle(pathlib.Path(sys.argv[1]), {
        "words": Rows(1, (rows, 64)), "global_step": ArrayTensor(np.array(5))},
        {"words": TableLayout("mod", 3, rows)}, lambda count: None)
"""


TIMEOUT = 3600


def run(directory, code, *arguments):
    done = start([sys.executable, "-c", textwrap.dedent(code), *arguments], cwd=directory,
                 timeout=TIMEOUT)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(name="large", scope="module", params=SIZES)
def large_table(request, tmp_path_factory):
    """A directory with a table as a TPU with three hosts writes it, and the number of its rows.

    The rows are equal to their ids.
    """
    path, rows = tmp_path_factory.mktemp("large"), request.param * 1024 * 1024 // 4 // 64
    run(path, GENERATE, "mod", rows)
    yield path, rows
    shutil.rmtree(path)  # pytest keeps the directories of its last runs


# A model on JAX whose table was never saved: TensorStore reads chunks that are missing as zeros.
TEMPLATE = """
    import json, pathlib, sys
    import tensorstore
    leaves = {("trainable_variables", "distributed_embedding", *sys.argv[3:]):
              [int(sys.argv[2]), 64], ("optimizer_variables", "sgd", "iteration"): []}
    path = pathlib.Path(sys.argv[1]).absolute()
    path.mkdir()
    (path / "_METADATA").write_text(json.dumps({"use_ocdbt": True, "tree_metadata": {
        str(keys): {"key_metadata": [{"key": key, "key_type": 2} for key in keys],
                    "value_metadata": {"value_type": "jax.Array"}} for keys in leaves}}))
    for keys, shape in leaves.items():
        tensorstore.open({"driver": "zarr", "create": True, "kvstore": {
            "driver": "ocdbt", "base": f"file://{path}/", "path": ".".join(keys) + "/"}},
            dtype="float32" if shape else "int32", shape=shape).result()
"""

COMMANDS = {
    "inspect": "inspect mod --from-hosts 3",
    "reshard": "reshard mod div --from-hosts 3 --hosts 4 --partition div",
    "to tf2": "convert div tf2 --to tf2",
    "to npz": "convert tf2 all.npz --to npz",
    "from npz": "convert all.npz layer --to tpu-embedding-layer",
    "resize": "convert div more --resize words={more} --hosts 7 --partition mod",
    "compare": "compare mod all.npz --from-hosts 3",
    "extract": "extract mod words.parquet --table words --from-hosts 3",
}


OF_ORBAX = {
    "to orbax": "convert mod orbax --from-hosts 3 --to keras-rs-jax --template template",
    "inspect orbax": "inspect orbax",
    "from orbax": "convert orbax back --to v1",
    "compare": "compare mod back --from-hosts 3",
}

OF_CORES = {
    "to cores": "convert mod cores --from-hosts 3 --to keras-rs-jax --template template_of_cores "
                "--sparse-cores 8x4",
    "from cores": "convert cores of_cores --to v1 --from-sparse-cores 8x4 --stacks stacks.json",
    "compare": "compare mod of_cores --from-hosts 3",
}


def test_memory_holds_no_table(large):
    """One after another, as each reads what one before wrote."""
    directory, rows = large
    check_growths(directory, {name: command.format(more=rows + 1000)
                              for name, command in COMMANDS.items()})


def test_memory_holds_no_table_of_orbax(large):
    pytest.importorskip("tensorstore", reason="needs the extra `orbax`")
    directory, rows = large
    run(directory, TEMPLATE, "template", rows, "words", "embeddings")
    check_growths(directory, OF_ORBAX)


def test_memory_holds_no_table_of_sparse_cores(large):
    pytest.importorskip("tensorstore", reason="needs the extra `orbax`")
    directory, rows = large
    run(directory, TEMPLATE, "template_of_cores", rows, "var:words:table")
    (directory / "stacks.json").write_text(json.dumps({"words": [rows, 64]}))
    check_growths(directory, OF_CORES)


def check_growths(directory, commands):
    growths = {}
    for name, arguments in commands.items():
        stdout = run(directory, PRELUDE + "    run(*sys.argv[1:])", *arguments.split())
        growths[name] = int(stdout.rsplit("growth ", 1)[1])
    print({name: f"{growth >> 20} MiB" for name, growth in growths.items()})
    assert {name: growth for name, growth in growths.items() if growth >= LIMIT} == {}
