"""A rank's error in one line, and whether it is a cause or only says that a peer is gone."""

from __future__ import annotations

import os

import pytest

from train.distributed.launch import read_launch
from train.record.cell_folder import read_failures
from train.run.failure import headline, write_error_file

# as TensorFlow 2.15 and Horovod 0.28.1 said it when a peer was killed
PEER_GONE = """Graph execution error:

Detected at node HorovodGroupedAllreduce_Identity_0 defined at (most recent call last):
  File "/x/train/step/train_step.py", line 83, in _run

[/gloo/gloo/transport/tcp/pair.cc:589] Read error [127.0.0.1]:5: Connection reset by peer
\t [[{{node HorovodGroupedAllreduce_Identity_0}}]] [Op:__inference__run_974]"""
WORKER_GONE = """Graph execution error:

Collective ops is aborted by: Socket closed
Additional GRPC error information from remote target /job:worker/replica:0/task:1 while calling /t:
The error could be from a previous operation. Restart your program to reset.
\t [[{{node CollectiveReduceV2}}]] [Op:__inference__reduce_2196]"""
# two devices' words, as TensorFlow puts them together
OUT_OF_MEMORY = """Graph execution error:

Detected at node zeros defined at (most recent call last):
  File "/x/train/step/train_step.py", line 83, in _run

2 root error(s) found.
  (0) RESOURCE_EXHAUSTED:  OOM when allocating tensor with shape[9,9] and type float on GPU:0
\t [[{{node zeros}}]]
Hint: If you want to see a list of allocated tensors when OOM happens, add report_tensor

\t [[while/body/_1/loss/_12]]
Hint: If you want to see a list of allocated tensors when OOM happens, add report_tensor

  (1) RESOURCE_EXHAUSTED:  OOM when allocating tensor with shape[9,9] and type float on GPU:0
\t [[{{node zeros}}]]
Hint: If you want to see a list of allocated tensors when OOM happens, add report_tensor

0 successful operations.
0 derived errors ignored. [Op:__inference_f_13]"""


# as Keras 2.15 said it of a layer whose call AutoGraph had converted
USER_CODE = """Exception encountered when calling layer 'bad' (type Bad).

in user code:

    File "/x/net.py", line 7, in call  *
        return tf.reshape(x, (7, 7))

    ValueError: Cannot reshape a tensor with 576 elements to shape [7,7]


Call arguments received by layer 'bad' (type Bad):
  • training=True"""


@pytest.mark.parametrize(
    ("text", "line", "consequence"),
    [
        (PEER_GONE, "Connection reset by peer", True),
        (WORKER_GONE, "Collective ops is aborted by: Socket closed", True),
        ("Horovod has been shut down. This was caused by an exception", "shut down", True),
        (OUT_OF_MEMORY, "OOM when allocating tensor with shape[9,9]", False),
        (USER_CODE, "RuntimeError: ValueError: Cannot reshape", False),
        ("disk on fire\nmore", "RuntimeError: disk on fire", False),
        ("", "RuntimeError: no message", False),
    ],
)
def test_headline_and_consequence(tmp_path, text, line, consequence) -> None:
    what = headline(RuntimeError(text))
    assert line in what and "\n" not in what
    (tmp_path / "logs").mkdir()
    write_error_file(what, read_launch({}), tmp_path)
    (found,) = read_failures(tmp_path)
    assert found.consequence is consequence
    assert found.error.what == what
    assert ("batch_per_rank" in found.error.what_to_do) == ("OOM" in text)


def test_a_file_name_that_is_no_text_does_not_hide_the_error(tmp_path) -> None:
    """Python keeps bytes that are no UTF-8 as lone surrogates, which no JSON can hold."""
    (tmp_path / "logs").mkdir()
    name = os.fsdecode(b"caf\xe9.png")
    write_error_file(f"cannot read {name}", read_launch({}), tmp_path, tail=f"File {name}")
    (found,) = read_failures(tmp_path)
    assert found.error.what == "cannot read caf\\udce9.png"
    assert found.error.log_tail == ("File caf\\udce9.png",)
