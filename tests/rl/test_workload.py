"""Prompts from files, and files that cannot be used."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine_overlay.rl import workload


def encode(text: str) -> list[int]:
    return list(text.encode())


def test_built_in_prompts_share_a_prefix_of_many_blocks() -> None:
    found = workload.prompts(None, encode)
    assert len(found) == len(workload.QUESTIONS) == len({tuple(ids) for ids in found})
    assert {tuple(ids[: len(workload.PREAMBLE)]) for ids in found} == {tuple(encode(workload.PREAMBLE))}
    assert workload.prompts(None, encode, 3) == found[:3]


def test_a_line_is_a_prompt(tmp_path: Path) -> None:
    file = tmp_path / "prompts.txt"
    file.write_text("a\n\nb c\n")
    assert workload.prompts(file, encode) == [[97], [98, 32, 99]]


def test_json_lines_hold_text_or_ids(tmp_path: Path) -> None:
    file = tmp_path / "prompts.jsonl"
    file.write_text('{"prompt": "a"}\n{"prompt_token_ids": [5, 6]}\n')
    assert workload.prompts(file, encode) == [[97], [5, 6]]
    file.write_text('{"prompt_token_ids": [5, 6]}\n')
    assert workload.prompts(file, None) == [[5, 6]]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "has no prompt"),
        ("{broken", "line 1 is no JSON"),
        ('{"prompt": "a"}\n[1]', 'line 2 has neither "prompt"'),
        ('{"prompt_token_ids": [1, "2"]}', "list of integers"),
        ('{"prompt_token_ids": [true]}', "list of integers"),
        ('{"prompt_token_ids": []}', "line 1 has no token"),
    ],
)
def test_a_broken_file_is_named_with_its_line(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "prompts.jsonl"
    file.write_text(text)
    with pytest.raises(workload.WorkloadError, match=said) as error:
        workload.prompts(file, encode)
    assert "\n" not in str(error.value)


def test_files_that_are_not_there_or_not_text(tmp_path: Path) -> None:
    with pytest.raises(workload.WorkloadError, match="No such file"):
        workload.prompts(tmp_path / "none.txt", encode)
    (tmp_path / "bytes.txt").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(workload.WorkloadError, match="not UTF-8"):
        workload.prompts(tmp_path / "bytes.txt", encode)


def test_text_needs_a_tokenizer() -> None:
    with pytest.raises(workload.WorkloadError, match="no tokenizer"):
        workload.prompts(None, None)
