import csv
import io
import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from polyak.logging import logger as logging
from polyak.logging.logger import (
    CSVOutputFormat,
    Figure,
    FormatUnsupportedError,
    HParam,
    HumanOutputFormat,
    Image,
    JSONOutputFormat,
    Logger,
    TensorBoardOutputFormat,
    Video,
    configure,
    configure_logger,
    get_latest_run_id,
    make_output_format,
)

MEDIA = {
    "video": Video(torch.zeros(1, 2, 3, 4, 4), 20),
    "figure": Figure(None, close=False),
    "image": Image(np.zeros((2, 2)), "HW"),
    "hparam": HParam({"lr": 0.1}, {"rollout/ep_rew_mean": 0.0}),
}


class CountingFile(io.StringIO):
    flushes = 0

    def flush(self):
        self.flushes += 1


def table(key_values, max_length=36, **excluded):
    file = CountingFile()
    HumanOutputFormat(file, max_length).write(key_values, excluded)
    assert file.flushes == 1
    return file.getvalue()


# -- the table ---------------------------------------------------------------------------------------------------------


def test_table_character_by_character():
    values = {
        "train/loss": 1.23456789, "a": 1, "time/fps": 10000, "rollout/ep_rew_mean": -1e-9, "z": "text", "b": True,
        "big": 123456789.0, "arr": np.array([1.0, 2.0]), "none": None, "train/n": np.float32(2.5),
    }  # fmt: skip
    assert table(values) == (
        "-----------------------------\n"
        "| a              | 1        |\n"
        "| arr            | [1. 2.]  |\n"
        "| b              | True     |\n"
        "| big            | 1.23e+08 |\n"
        "| none           | None     |\n"
        "| rollout/       |          |\n"
        "|    ep_rew_mean | -1e-09   |\n"
        "| time/          |          |\n"
        "|    fps         | 10000    |\n"
        "| train/         |          |\n"
        "|    loss        | 1.23     |\n"
        "|    n           | 2.5      |\n"
        "| z              | text     |\n"
        "-----------------------------\n"
    )


def test_odd_keys():
    assert table({"": 4, "b/": 1, "b/y/z": 3, "/c": 5}) == (
        "--------------\n"
        "|        | 4 |\n"
        "| /c     | 5 |\n"
        "| b/     |   |\n"
        "|        | 1 |\n"
        "|    y/z | 3 |\n"
        "--------------\n"
    )


@pytest.mark.parametrize("prefix", ["", "group/"])
def test_keys_that_collide_once_cut_are_an_error(prefix):
    with pytest.raises(ValueError, match=r"Key .* truncated to .* equals another one. Raise max_length=36"):
        table({prefix + "k" * 50 + "a": 1.0, prefix + "k" * 50 + "b": 2.0})
    assert table({"x/" + "k" * 50: 1.0, "y/" + "k" * 50: 2.0}).count("kkk...") == 2


def test_excluded_keys_and_an_empty_table():
    values = {"a/x": 1, "b/x": 1, "c": "tb"}
    assert table(values, **{"a/x": ("log",), "b/x": ("stdout", "json"), "c": ("tensorboard",)}) == table({"c": "tb"})
    with pytest.warns(UserWarning, match="The table has no rows"):
        HumanOutputFormat(io.StringIO()).write({}, {})


def test_messages_and_ownership_of_the_file(tmp_path):
    file = io.StringIO()
    sink = HumanOutputFormat(file)
    sink.write_sequence(["a", "b c"])
    sink.close()
    assert file.getvalue() == "a b c\n"  # still open
    own = HumanOutputFormat(str(tmp_path / "log.txt"))
    own.close()
    assert own.file.closed
    with pytest.raises(ValueError, match="Expected file or str, got 3"):
        HumanOutputFormat(3)


def test_stdout_is_looked_up_when_it_is_written(monkeypatch):
    """A progress bar replaces sys.stdout after the logger is made."""
    sink = HumanOutputFormat(sys.stdout)
    later = io.StringIO()
    monkeypatch.setattr(sys, "stdout", later)
    sink.write({"a": 1}, {})
    assert later.getvalue() == table({"a": 1})


# -- files -------------------------------------------------------------------------------------------------------------


def test_csv_grows_columns(tmp_path):
    path = tmp_path / "progress.csv"
    sink = CSVOutputFormat(path)
    sink.write({"b": 1, "a": 2.5}, {})
    sink.write({"a": 3}, {})
    sink.write({"a": np.float64(3.25), "c": 'x,"y"\nz', "d": None}, {})
    sink.write({"b": np.float32(1.5), "c": torch.tensor([7.0]), "e": 1}, {"e": ("csv",)})
    sink.close()
    rows = list(csv.reader(path.open(newline="")))
    assert rows == [
        ["a", "b", "c", "d"],
        ["2.5", "1", "", ""],
        ["3", "", "", ""],
        ["3.25", "", 'x,"y"\nz', ""],
        ["", "1.5", "7.0", ""],
    ]


def test_json_lines(tmp_path):
    sink = JSONOutputFormat(tmp_path / "p.json")
    values = {"f": np.float32(1.5), "one": np.array([1.5]), "many": torch.arange(3), "i": np.int64(4), "s": "x"}
    sink.write(values | {"no": 1}, {"no": ("json",)})
    sink.write({"f": 2}, {})
    sink.close()
    lines = (tmp_path / "p.json").read_text().splitlines()
    assert json.loads(lines[0]) == {"f": 1.5, "one": 1.5, "many": [0, 1, 2], "i": 4, "s": "x"}
    assert json.loads(lines[1]) == {"f": 2}


@pytest.mark.parametrize("kind", MEDIA)
@pytest.mark.parametrize(("name", "formats"), [("log", ("stdout", "log")), ("json", ("json",)), ("csv", ("csv",))])
def test_media_are_refused_unless_excluded(tmp_path, kind, name, formats):
    sink = make_output_format(name, str(tmp_path))
    message = (
        f"{', '.join(formats)} cannot hold a value of kind {kind!r}. "
        f"Leave it out there: record(key, value, exclude={formats})."
    )
    with pytest.raises(FormatUnsupportedError) as error:
        sink.write({"m": MEDIA[kind]}, {"m": ()})
    assert str(error.value) == message
    sink.write({"m": MEDIA[kind], "x": 1}, {"m": ("stdout", "log", "json", "csv")})
    sink.close()


def test_tensorboard(tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    logger = configure(str(tmp_path), ["tensorboard"])
    logger.record("text", "hello")
    logger.record("python", 1.5)
    logger.record("numpy", np.float32(2.5))
    logger.record("torch", torch.tensor(3.5, requires_grad=True))
    logger.record("one", torch.tensor([4.5]))
    logger.record("many", torch.ones(5))
    logger.record("hidden", 1, exclude="tensorboard")
    logger.record("image", Image(torch.zeros(2, 2, 3), "HWC"))
    logger.record("hparams", MEDIA["hparam"])
    logger.dump(step=7)
    logger.close()
    logger.close()  # twice is harmless
    events = EventAccumulator(str(tmp_path))
    events.Reload()
    tags = events.Tags()
    assert set(tags["scalars"]) == {"python", "numpy", "torch"}
    assert [(e.step, e.value) for e in events.Scalars("torch")] == [(7, 3.5)]
    assert tags["histograms"] == ["one", "many"]
    assert tags["images"] == ["image"]
    assert tags["tensors"] == ["text/text_summary"]
    assert events.PluginTagToContent("hparams").keys() == {"_hparams_/experiment", "_hparams_/session_start_info",
                                                            "_hparams_/session_end_info"}  # fmt: skip
    with pytest.raises(RuntimeError, match="closed"):
        logger.output_formats[0].write({"a": 1}, {})
    with pytest.raises(ValueError, match="metric_dict must not be empty"):
        HParam({"lr": 1}, {})


@pytest.mark.parametrize("make", [lambda folder: configure(folder, ["tensorboard"]), TensorBoardOutputFormat])
def test_missing_tensorboard_names_the_extra(tmp_path, monkeypatch, make):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard.writer", None)
    with pytest.raises(ImportError, match=r"pip install 'polyak\[extra\]'"):
        make(str(tmp_path))


# -- the logger --------------------------------------------------------------------------------------------------------


def test_record_and_means(tmp_path):
    logger = configure(str(tmp_path), ["json"])
    logger.record("last", 1)
    logger.record("last", 2, exclude="csv")
    for value in (1, None, 4, torch.tensor(7.0)):
        logger.record_mean("mean", value)
    assert logger.name_to_count["mean"] == 3
    assert logger.name_to_excluded == {"last": ("csv",), "mean": ("",)}
    logger.dump(5)
    assert not logger.name_to_value
    assert not logger.name_to_count
    assert not logger.name_to_excluded
    logger.record_mean("mean", 10)  # starts again
    logger.dump(6)
    lines = [json.loads(line) for line in (tmp_path / "progress.json").read_text().splitlines()]
    assert lines == [{"last": 2, "mean": 4.0}, {"mean": 10.0}]


def test_tensors_are_copied_at_once(tmp_path):
    logger = configure(str(tmp_path), ["json", "csv"])
    weight = torch.tensor(1.0, requires_grad=True)
    logger.record("loss", weight * 2)
    buffer, weights = torch.tensor(3.0), torch.ones(2, requires_grad=True)
    logger.record("buffer", buffer)
    logger.record("count", torch.tensor(4))
    logger.record("weights", weights, exclude=("json", "csv"))
    with torch.no_grad():
        buffer.fill_(99.0)  # training continues in place
        weights.fill_(99.0)
    assert torch.equal(logger.name_to_value["weights"], torch.ones(2))
    assert not logger.name_to_value["weights"].requires_grad
    logger.dump(1)
    assert json.loads((tmp_path / "progress.json").read_text()) == {"loss": 2.0, "buffer": 3.0, "count": 4}
    assert (tmp_path / "progress.csv").read_text() == "buffer,count,loss\n3.0,4,2.0\n"


def test_levels(tmp_path):
    logger = configure(str(tmp_path), ["log"])
    for level in (logging.DEBUG, logging.WARN, logging.DISABLED):
        logger.set_level(level)
        for name in ("debug", "info", "warn", "error"):
            getattr(logger, name)(level, name)
        logger.record("level", level)
        logger.dump()
    logger.close()
    text = (tmp_path / "log.txt").read_text()
    assert [line for line in text.splitlines()[1:] if line[0].isdigit()] == [
        "10 debug", "10 info", "10 warn", "10 error", "30 warn", "30 error"
    ]  # fmt: skip
    assert text.count("| level |") == 2  # no table when disabled
    assert not logger.name_to_value


def test_configure_reads_the_environment(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("SB3_LOGDIR", str(tmp_path / "here"))
    monkeypatch.setenv("SB3_LOG_FORMAT", "csv,stdout")
    logger = configure()
    assert logger.get_dir() == str(tmp_path / "here")
    assert [type(sink).__name__ for sink in logger.output_formats] == ["CSVOutputFormat", "HumanOutputFormat"]
    monkeypatch.delenv("SB3_LOGDIR")
    monkeypatch.delenv("SB3_LOG_FORMAT")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    logger = configure()
    assert [type(sink).__name__ for sink in logger.output_formats] == [
        "HumanOutputFormat", "HumanOutputFormat", "CSVOutputFormat"
    ]  # fmt: skip
    assert logger.get_dir().startswith(str(tmp_path))
    logger.close()


def test_a_silent_logger_leaves_no_folder_behind(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    logger = configure_logger(verbose=0)
    logger.record("a", 1)
    logger.dump(1)
    assert logger.output_formats == []
    assert list(tmp_path.iterdir()) == []
    assert capsys.readouterr().out == ""
    folder = logger.get_dir()  # made on request
    assert list(tmp_path.iterdir()) == [Path(folder)]
    assert Logger(None, []).get_dir() is None


def test_configure_refuses_what_it_does_not_know(tmp_path):
    with pytest.raises(ValueError, match="Unknown format specified: xml"):
        configure(str(tmp_path), ["xml"])
    with pytest.raises(TypeError, match="folder must be a path or None"):
        configure(3)


def test_run_ids(tmp_path):
    assert get_latest_run_id(str(tmp_path / "nowhere"), "A") == 0
    for name in ("A_B_1", "A_B_12", "A_Bx_20", "A_B_x", "A_30", "A_4", "A_"):
        (tmp_path / name).mkdir()
    assert get_latest_run_id(str(tmp_path), "A_B") == 12
    assert get_latest_run_id(str(tmp_path), "A") == 30
    assert get_latest_run_id(str(tmp_path), "[AB]") == 0
