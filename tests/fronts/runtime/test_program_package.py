# SPDX-License-Identifier: Apache-2.0
"""Which programs need `python -m`, and as what they run."""

import pytest

from tests.subprocesses import run_python
from tpu_estimator_embedding.runtime.program_package import import_beside, package_of


def tree(folder, files):
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


@pytest.mark.parametrize("files, expected", [
    ({"trainer/task.py": "from . import model"}, ("", "trainer", True)),
    ({"trainer/task.py": "from .model import model_fn"}, ("", "trainer", True)),
    ({"jobs/__init__.py": "", "jobs/trainer/__init__.py": "",
      "jobs/trainer/task.py": "def main():\n    from .model import model_fn"},
     ("", "jobs.trainer", True)),
    ({"jobs/trainer/task.py": "from ..models import model"}, ("", "jobs.trainer", True)),
    ({"trainer/model.py": "", "trainer/task.py": "from trainer import model"},
     ("", "trainer", False)),
    ({"jobs/models/dnn.py": "", "jobs/run/task.py": "import jobs.models.dnn as dnn"},
     ("", "jobs.run", False)),
    # Scripts, and names that are not those of the program's own folders:
    ({"trainer/model.py": "", "trainer/task.py": "import model"}, None),
    ({"trainer/model.py": "", "trainer/task.py": "import model\nfrom trainer import model"}, None),
    ({"tensorflow/task.py": "import tensorflow as tf\nfrom tensorflow import keras"}, None),
    ({"my-trainer/task.py": "from . import model"}, None),
    ({"trainer/task.py": "print 'of Python 2'"}, None),
    ({"trainer/other.py": ""}, None),
    ({"trainer/model.py": "", "trainer/task.py": "try:\n    from . import model\n"
      "except ImportError:\n    import model"}, None),
    ({"task/model.py": "", "task/task.py": "from task import model"}, ("", "task", False)),
])
def test_package_of_a_program(files, expected, tmp_path):
    [name] = [name for name in files if name.endswith("task.py")] or ["trainer/task.py"]
    found = package_of(tree(tmp_path, files) / name)
    assert found == (expected and (tmp_path / expected[0], *expected[1:]))


@pytest.mark.parametrize("program, module, expected", [
    ("trainer/task.py", "trainer/task.py", "from . import embedding_config\n"),
    ("trainer/task.py", "trainer/deep/model.py", "from trainer import embedding_config\n"),
    ("trainer/task.py", "trainer/absolute.py", "from trainer import embedding_config\n"),
    ("main.py", "trainer/task.py", "import embedding_config\n"),
])
def test_import_of_a_module_beside_the_program(program, module, expected, tmp_path):
    tree(tmp_path, {"trainer/task.py": "from . import absolute", "main.py": "import trainer.task",
                    "trainer/absolute.py": "import trainer.task",
                    "trainer/deep/model.py": "from ..absolute import x"})
    assert import_beside(tmp_path / program, tmp_path / module, "embedding_config") == expected


def test_program_runs_as_python_m_would_run_it(tmp_path):
    tree(tmp_path, {"jobs/trainer/model.py": "NAME = __name__", "jobs/trainer/task.py": """
import sys
from .model import NAME
print(NAME, __name__, __package__, sys.argv[1:], sys.path[0])
"""})
    done = run_python(f"""
from tpu_estimator_embedding.runtime import program_runner
program_runner.run_program({str(tmp_path / "jobs/trainer/task.py")!r}, ["--steps", "3"],
                           lambda: None)
""")
    assert done.stdout == f"trainer.model __main__ trainer ['--steps', '3'] {tmp_path / 'jobs'}\n"
