"""The examples' parts that need no launcher: the corpus, its batches, the model, the comparison."""

from __future__ import annotations

import copy
import sys
from itertools import islice
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "examples"), str(ROOT / "bench")]

import compare_runs  # noqa: E402
import three_seeds  # noqa: E402
from _common.command_line import parse_sizes  # noqa: E402
from _common.report import summarize  # noqa: E402
from llama_model import Llama, LlamaConfig, next_token_loss  # noqa: E402
from stdlib_corpus import batches, load_corpus, source_files, windows  # noqa: E402

TINY = LlamaConfig(width=32, layers=2, heads=4, hidden=48)


@pytest.fixture(scope="module")
def corpus():
    return load_corpus()


def test_corpus_is_the_same_every_time(corpus):
    again = load_corpus()
    assert again.train_files == corpus.train_files
    assert torch.equal(again.train, corpus.train)
    assert torch.equal(again.held_out, corpus.held_out)


def test_no_file_is_on_both_sides_of_the_split(corpus):
    train, held_out = set(corpus.train_files), set(corpus.held_out_files)
    assert not train & held_out
    assert 0.02 < len(held_out) / (len(train) + len(held_out)) < 0.10
    assert corpus.train.numel() > 4_000_000
    assert corpus.held_out.numel() > 100_000


def test_corpus_holds_the_library_and_no_tests_or_packages(corpus):
    names = corpus.train_files + corpus.held_out_files
    assert {"argparse.py", "asyncio/events.py", "json/decoder.py"} <= set(names)
    directories = {part for name in names for part in name.split("/")[:-1]}
    assert not directories & {"test", "tests", "site-packages", "__pycache__"}


def test_order_of_files_does_not_depend_on_the_file_system(tmp_path):
    for name in ("b.py", "a/z.py", "a/test/y.py", "a.py", "note.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    assert source_files(tmp_path) == ["a.py", "a/z.py", "b.py"]


def test_split_depends_on_names_alone(tmp_path):
    names = [f"m{i}.py" for i in range(100)]
    for name in names:
        (tmp_path / name).write_text("x = 1\n")
    before = load_corpus(tmp_path)
    (tmp_path / "m0a.py").write_text("y = 2\n")
    after = load_corpus(tmp_path)
    assert set(before.held_out_files) <= set(after.held_out_files)
    assert set(before.train_files) <= set(after.train_files)


def test_too_few_files_are_refused(tmp_path):
    (tmp_path / "one.py").write_text("x = 1\n")
    with pytest.raises(ValueError, match="too few Python sources"):
        load_corpus(tmp_path)


def test_every_token_is_a_target_of_one_window():
    text = torch.arange(1, 42, dtype=torch.uint8)
    rows = windows(text, 8)
    assert rows.shape == (5, 9)
    assert rows[:, 1:].flatten().tolist() == text[1:41].tolist()
    with pytest.raises(ValueError, match="no window"):
        windows(text, 41)


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_ranks_share_an_epoch_without_a_row_in_common(ranks):
    rows = torch.arange(50).unsqueeze(1)
    steps = 50 // (4 * ranks)
    seen = [
        torch.cat(list(islice(batches(rows, 4, rank, ranks, seed=7), steps))).flatten().tolist()
        for rank in range(ranks)
    ]
    together = [row for own in seen for row in own]
    assert len(together) == len(set(together)) == steps * 4 * ranks
    assert seen[0] != sorted(seen[0])


def test_batches_repeat_by_seed_and_change_by_epoch():
    rows = torch.arange(16).unsqueeze(1)

    def first(count, seed):
        return torch.cat(list(islice(batches(rows, 4, 0, 1, seed), count))).flatten().tolist()

    two_epochs = first(8, seed=1)
    assert two_epochs == first(8, seed=1)
    assert two_epochs != first(8, seed=2)
    assert sorted(two_epochs[:16]) == sorted(two_epochs[16:]) == list(range(16))
    assert two_epochs[:16] != two_epochs[16:]


def test_model_has_the_stated_size_and_starts_near_uniform():
    torch.manual_seed(0)
    model = Llama(LlamaConfig(), length=16)
    assert sum(p.numel() for p in model.parameters()) == 3_295_488
    rows = torch.randint(0, 256, (2, 17))
    assert model(rows[:, :-1]).shape == (2, 16, 256)
    # A uniform guess among 256 bytes costs ln 256 = 5.55 nats.
    assert 5.4 < next_token_loss(model, rows).item() < 5.9


def test_model_does_not_look_ahead():
    torch.manual_seed(0)
    model = Llama(TINY, length=12)
    tokens = torch.randint(0, 256, (1, 12))
    changed = tokens.clone()
    changed[0, 8] = (changed[0, 8] + 1) % 256
    before, after = model(tokens), model(changed)
    assert torch.equal(before[:, :8], after[:, :8])
    assert not torch.allclose(before[:, 8:], after[:, 8:])


def test_attention_sees_order_through_rotation_alone():
    torch.manual_seed(0)
    model = Llama(TINY, length=12)
    tokens = torch.randint(0, 256, (1, 12))
    swapped = tokens[:, [1, 0, *range(2, 12)]]
    assert not torch.allclose(model(tokens)[:, -1], model(swapped)[:, -1])
    model.cos.fill_(1.0)
    model.sin.zero_()
    # One layer of attention without positions is a set function of what came before.
    model.blocks = model.blocks[:1]
    assert torch.allclose(model(tokens)[:, -1], model(swapped)[:, -1], atol=1e-5)


def test_heads_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="even number of features"):
        LlamaConfig(width=30, heads=4)


def test_model_learns():
    torch.manual_seed(0)
    model = Llama(TINY, length=16)
    rows = torch.arange(4 * 17).reshape(4, 17) % 256
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    first = next_token_loss(model, rows).item()
    for _ in range(30):
        loss = next_token_loss(model, rows)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    assert loss.item() < first / 2


def example_run(backend, loss):
    return {
        "config": {"backend": backend, "steps": 3, "seed": 0},
        "torch": "2.13.0",
        "device": "cpu",
        "ranks": 2,
        "parameters": 1_000_000,
        "validation_loss": loss,
        "validation_curve": [[0, 5.5], [3, loss]],
        "training_losses": [5.5, 4.0, loss],
        "step_seconds": [0.1, 0.1, 0.3],
        "total_seconds": 0.5,
        "communication": {"seconds": 0.1, "bytes_sent": 2**20},
    }


def test_runs_that_differ_in_more_than_the_backend_are_not_compared():
    base, other = example_run("gloo", 2.0), example_run("agoq", 2.01)
    compare_runs.check_comparable(base, other)
    assert compare_runs.loss_difference(base, other) == pytest.approx(0.005)
    longer = copy.deepcopy(other)
    longer["config"]["steps"] = 4
    with pytest.raises(ValueError, match="differ in steps: 3 and 4"):
        compare_runs.check_comparable(base, longer)
    with pytest.raises(ValueError, match="differ in ranks"):
        compare_runs.check_comparable(base, other | {"ranks": 4})


def test_losses_are_drawn(tmp_path):
    picture = tmp_path / "figures" / "training.png"
    compare_runs.draw_losses(example_run("gloo", 2.0), example_run("agoq", 2.01), picture)
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_seeds_go_between_the_marks_and_nowhere_else():
    page = "before\n<!-- seeds: begin -->\nold\n<!-- seeds: end -->\nafter\n"
    once = three_seeds.replace_table(page, "new")
    assert once == page.replace("old", "new")
    assert three_seeds.replace_table(once, "new") == once
    with pytest.raises(ValueError, match="lacks the marks"):
        three_seeds.replace_table("before", "new")


def test_documented_page_has_the_marks():
    page = (ROOT / "docs" / "training.md").read_text()
    assert "| seed |" in three_seeds.replace_table(page, "| seed |")


def test_message_sizes_double_from_min_to_max():
    assert parse_sizes("64K:256KiB") == (65536, 131072, 262144)
    assert parse_sizes("8") == (1, 2, 4, 8)
    assert parse_sizes("4:24") == (4, 8, 16)


def test_times_are_of_the_slowest_rank():
    base = torch.tensor([[1.0, 2.0, 4.0], [2.0, 1.0, 1.0]])
    other = torch.tensor([[1.0, 0.5, 1.0], [0.5, 1.0, 2.0]])
    times = summarize(other, base)
    assert times["median_us"] == pytest.approx(1e6)
    assert times["ratio"] == pytest.approx(2.0)
    assert times["maximum_us"] == pytest.approx(3.5e6 / 3)
