# SPDX-License-Identifier: Apache-2.0
"""Inspects, converts, compares and extracts checkpoints with embedding tables.

No function here loads TensorFlow, and memory holds a few blocks of rows, regardless of table sizes.

    from tpu_estimator_embedding import checkpoint

    print(checkpoint.inspect("model_dir").tables)
    checkpoint.convert("model_dir", "tf2/ckpt-1", "tf2")
    checkpoint.reshard("tpu/model.ckpt-100", "new/model.ckpt-100", 3, "div",
                       reading=checkpoint.Reading(from_hosts=4))
    assert checkpoint.compare("tpu/model.ckpt-100", "new/model.ckpt-100",
                              reading_a=checkpoint.Reading(from_hosts=4)).agree
    checkpoint.extract("model_dir", "words", "words.parquet")

`reading` reads a checkpoint of any format into `contents`; `conversion` writes it in another one,
`comparison`, `inspection` and `extraction` look into it. A format is `tf2_format`,
`keras_rs_format`, `npz_format`, or the names of TPUEstimator (`names`) in a `bundle`, TensorFlow's
files. `table_layouts` describes the order of a table's rows. `saver_patches`, `moved_rows` and the
modules with `save` in their names run in TensorFlow programs: they save and restore tables with
their layouts, `in_place_saver`, `export_saver` and `background_save` piece by piece.
"""

import importlib
from typing import Any

_MODULE_OF = {
    "CheckpointReport": "inspection",
    "Comparison": "comparison",
    "Conversion": "conversion",
    "Reading": "reading",
    "Resize": "resizing",
    "TableLayout": "table_layouts",
    "compare": "comparison",
    "convert": "conversion",
    "extract": "extraction",
    "inspect": "inspection",
    "reshard": "conversion",
}

__all__ = list(_MODULE_OF)  # noqa: PLE0605 (all are strings)


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = importlib.import_module(f"{__name__}.{_MODULE_OF[name]}")
    globals()[name] = getattr(module, name)
    return globals()[name]
