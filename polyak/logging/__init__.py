"""Logging of numbers, figures and videos of a training."""

from polyak.logging.logger import (
    CSVOutputFormat,
    Figure,
    HParam,
    HumanOutputFormat,
    Image,
    JSONOutputFormat,
    KVWriter,
    Logger,
    TensorBoardOutputFormat,
    Video,
    configure,
    make_output_format,
)

__all__ = [
    "CSVOutputFormat",
    "Figure",
    "HParam",
    "HumanOutputFormat",
    "Image",
    "JSONOutputFormat",
    "KVWriter",
    "Logger",
    "TensorBoardOutputFormat",
    "Video",
    "configure",
    "make_output_format",
]
