# SPDX-License-Identifier: Apache-2.0
"""Summaries for TensorBoard's HParams dashboard: the experiment and the overrides of each run."""

from collections.abc import Sequence

from tensorboard.compat.proto import summary_pb2
from tensorboard.plugins.hparams import api_pb2, metadata, plugin_data_pb2, summary_v2

from tpu_estimator_embedding.experiments.event_files import write_summaries
from tpu_estimator_embedding.experiments.results import Results, RunResult

_TITLES = {"multiplier": "gradient multiplier", "learning_rate": "learning rate of the tables",
           "clipping_limit": "clipping limit", "seed": "seed"}
_NUMBERS = ("learning_rate", "clipping_limit")


def write_hparams(results: Results) -> None:
    """Writes the experiment next to the runs, and the overrides into every finished run."""
    shown = [result for result in results.runs if result.has_ended]
    names = sorted({name for result in shown for name in _hparams(result)}, key=_order)
    experiment = summary_v2.hparams_config_pb(
        [summary_v2.HParam(name, _domain([_hparams(result).get(name) for result in shown]),
                           display_name=_TITLES.get(name, name)) for name in names],
        [_metric(name) for name in results.metric_names])
    write_summaries(results.directory, "hparams", [(0, experiment)])
    for result in shown:
        write_summaries(result.run.directory, "hparams", [
            (0, summary_v2.hparams_pb(_hparams(result), trial_id=result.run.name)),
            (0, _end(result))])


def _hparams(result: RunResult) -> dict[str, str | float]:
    values = {name: float(text) if name in _NUMBERS else text
              for name, text in result.run.setting.texts.items()}
    return {**values, "seed": float(result.run.seed)}


def _order(name: str) -> tuple[int, str]:
    """The sort key of a setting: settings of single tables come last."""
    titles = list(_TITLES)
    return titles.index(name) if name in titles else len(titles), name


def _domain(values: Sequence[str | float | None]) -> summary_v2.Discrete:
    return summary_v2.Discrete(list(dict.fromkeys(value for value in values if value is not None)))


def _metric(name: str) -> summary_v2.Metric:
    """The description of a metric, whose curve is in a directory below that of the run."""
    evaluation, _, tag = name.rpartition("/")
    group = "model/eval" + (f"_{evaluation}" if evaluation else "")
    return summary_v2.Metric(tag, group=group, display_name=name)


def _end(result: RunResult) -> summary_pb2.Summary:
    status = api_pb2.STATUS_FAILURE if result.error else api_pb2.STATUS_SUCCESS
    data = plugin_data_pb2.HParamsPluginData(
        session_end_info=plugin_data_pb2.SessionEndInfo(status=status))
    return summary_pb2.Summary(value=[summary_pb2.Summary.Value(
        tag=metadata.SESSION_END_INFO_TAG, metadata=metadata.create_summary_metadata(data),
        tensor=metadata.NULL_TENSOR)])
