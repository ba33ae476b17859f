# SPDX-License-Identifier: Apache-2.0
"""`report A B`: several models in one report, from event files as Estimators write them."""

import re

import pytest

from tests import browser
from tpu_estimator_embedding import cli
from tpu_estimator_embedding.experiments.event_files import read_scalars, write_summaries


def write_model(directory, losses, accuracy):
    from tensorboard.compat.proto import summary_pb2
    for name, tag, values in (("", "loss", losses), ("eval", "accuracy", accuracy)):
        write_summaries(directory / name, "1", [
            (10 * place, summary_pb2.Summary(value=[
                summary_pb2.Summary.Value(tag=tag, simple_value=value)]))
            for place, value in enumerate(values, 1)])


@pytest.fixture
def models(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_model(tmp_path / "before", [0.75, 0.5], [0.25])
    write_model(tmp_path / "after", [0.75, 0.5, 0.125], [0.625])
    return tmp_path


@pytest.mark.long
def test_several_models_share_a_table_and_figures(models, capsys):
    assert cli.main(["report", "before", "after"]) == 0
    assert str(models / "report" / "report.html") in capsys.readouterr().out
    page = (models / "report" / "report.html").read_text()
    [table] = re.findall("(?s)<tr><th>model</th>.*?</table>", page)
    rows = [re.findall("<t[dh][^>]*>([^<]*)<", row) for row in table.splitlines()[:3]]
    assert rows == [["model", "last step", "accuracy", "training/loss"],
                    ["before", "20", "0.25", "0.5"], ["after", "30", "0.625", "0.125"]]
    figure = (models / "report" / "training_loss.svg").read_text()
    assert "before" in figure and "after" in figure
    assert not (models / "report" / "accuracy.svg").exists()  # one value is a number
    browser.check_report(models / "report" / "report.html", models)


@pytest.mark.parametrize("damage, what, left", [
    (lambda content: b"not an event file at all, just text of some length", "length at byte 0", []),
    (lambda content: content[:-1] + bytes([content[-1] ^ 1]), r"record at byte \d+", [(10, 0.75)]),
    (lambda content: content + bytes(50), r"length at byte \d+", [(10, 0.75), (20, 0.5)])])
def test_damaged_event_file_is_named_and_the_rest_of_it_skipped(models, damage, what, left):
    [path] = (models / "before").glob("*tfevents*")
    path.write_bytes(damage(path.read_bytes()))
    with pytest.warns(UserWarning, match=rf"{path} is damaged, or not an event file: the {what} "
                      "does not match its checksum. The report leaves out the rest") as warned:
        curves = read_scalars(models / "before")
    assert len(warned) == 1
    assert curves["accuracy"] == [(10, 0.25)]
    assert curves.get("training/loss", []) == left


def test_event_that_is_being_written_is_skipped_silently(models, recwarn):
    [path] = (models / "before").glob("*tfevents*")
    content = path.read_bytes()
    for missing in range(1, 30):  # cuts the checksum, the record, its length
        path.write_bytes(content[:-missing])
        assert read_scalars(models / "before")["training/loss"] == [(10, 0.75)]
    assert not recwarn.list


@pytest.mark.parametrize("directories, reason", [
    (["before", "nothing"], "No event file in nothing has a scalar"),
    (["before", "./before"], "different directories")])
def test_what_cannot_be_compared_is_refused(models, directories, reason, capsys):
    assert cli.main(["report", *directories]) == 2
    assert reason in capsys.readouterr().err
    assert not (models / "report").exists()


@pytest.mark.parametrize("command", [
    ["report", "before"], ["report", "before", "after"],
    ["sweep", "program.py", "--multiplier", "1"]])
def test_output_that_is_a_file_is_refused(models, command, capsys):
    (models / "file").write_text("mine")
    (models / "program.py").write_text("")
    out = models / "file" / "below"
    assert cli.main([command[0], "--out", str(out), *command[1:]]) == 2
    assert (f"`--out` must be a directory or a new path, got {str(out)!r}. "
            f"{str(models / 'file')!r} is a file." in capsys.readouterr().err)
    assert (models / "file").read_text() == "mine"


@pytest.mark.parametrize("command", [
    ["report", "before", "--out"], ["sweep", "program.py", "--multiplier", "1", "--out"],
    ["demo", "--model-dir"]])
def test_output_that_cannot_be_made_is_named(models, command, capsys):
    (models / "program.py").write_text("")
    assert cli.main([*command, "/proc/nowhere"]) == 2
    assert "'/proc/nowhere'" in capsys.readouterr().err
