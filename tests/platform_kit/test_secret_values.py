"""Values that look like secrets in lines of code, settings and commands."""

from __future__ import annotations

import time

import pytest

from nni_manager.platform_kit.secret_values import masked_command, masked_line

pytestmark = pytest.mark.unit

_HEX = "0123456789abcdef0123456789abcdef01234567"
_LETTERS = "aB3dE5gH7jK9mN1pQ3sT5vX7zA9cD1eF3hJ5"

SECRETS = [
    ('WANDB_KEY = "{}"', _HEX),
    ('wandb.login(key="{}")', _HEX),
    ('headers = {{"Authorization": "Bearer {}"}}', f"ghp_{_LETTERS}"),
    ('run(["curl", "-H", "X: Bearer {}"])', _LETTERS),
    ('hf = "{}"', f"hf_{_LETTERS[:34]}"),
    ('client("{}")', "AKIAIOSFODNN7EXAMPLE"),
    ('use("{}")', f"github_pat_{_LETTERS}"),
    ('use("{}")', f"glpat-{_LETTERS[:20]}"),
    ('use("{}")', f"sk-proj-{_LETTERS}"),
    ('use("{}")', f"xoxb-123456789012-{_LETTERS}"),
    ('use("{}")', f"eyJhbGciOiJIUzI1NiJ9.{_LETTERS}.{_LETTERS}"),
    ('credentials = ("bob", "{}")', "hunter22"),
    ('requests.get(url, auth=("bob", "{}"))', "hunter22"),
    ('PWD = "{}"', "hunter22"),
    ('MYSQL_PWD: "{}"', "hunter22"),
    ('password = """{}"""', "hunter22"),
    ('"os.environ[\\"WANDB_API_KEY\\"] = \\"{}\\"\\n",', "hunter22"),
    ("a = \"password='{}'\"", "hunter22"),
    ("- token: {}", "hunter22"),
    ("export API_KEY={}", "hunter22"),
    ("  API_KEY={}", "hunter22"),
    ("WANDB_API_KEY={} python3 trial.py", _HEX),
    ("python3 trial.py --wandb-api-key {} --epochs 3", _HEX),
    ("DefaultEndpointsProtocol=https;AccountName=a;AccountKey={}", f"{_LETTERS}=="),
    ("https://a.blob.core.windows.net/c?sv=2022&sig={}", "aB3%2FdE5gH7jK9%3D"),
]


@pytest.mark.parametrize("mark", ["", "+", "-", " "])
@pytest.mark.parametrize(("line", "secret"), SECRETS, ids=range(len(SECRETS)))
def test_secret_is_masked_once(line: str, secret: str, mark: str) -> None:
    written = mark + line.format(secret)
    assert masked_line(written) == (masked_line(written)[0], 1)
    shown = masked_line(written)[0]
    assert not any(secret[at : at + 4] in shown for at in range(len(secret) - 3)) and shown.startswith(mark)


CODE = [
    "sorted(pairs, key=lambda pair: pair[1])",
    'best = min(trials, key="loss")',
    'model = load(key="encoder/layers.0.weight")',
    "for key, value in state.items():",
    'sort_key = "accuracy"',
    'image_key = "images"',
    'tokenizer = AutoTokenizer.from_pretrained("bert-base-uncased")',
    'tokenizer = "bert-base-uncased"',
    'pad_token = "<|endoftext|>"',
    'parser.add_argument("--token", help="of the hub")',
    "token = tokenizer.next()",
    "    token=token,",
    "    password=args.password,",
    "    token=args.token",
    "password = getpass.getpass()",
    "# sk-learn's risk-adjusted score; a Bearer authentication is not used",
    '<div class="sk-toggleable__content sk-estimator-doc-link">',
    "hf_hub_download(repo_id, hf_home)",
    "- key: nvidia.com/gpu",
    "keys = list(tokens)",
    "export PATH=/opt/conda3/bin:$PATH",
    "x = 1",
    "",
]


@pytest.mark.parametrize("line", CODE)
def test_ordinary_code_is_kept(line: str) -> None:
    assert masked_line("+" + line) == ("+" + line, 0)


@pytest.mark.thorough
@pytest.mark.parametrize("length", [100, 4000, 2**18])
@pytest.mark.parametrize(
    "piece", ["a=", "key=", "token=", "a='", "-a ", "--key ", 'key="\\', "://", "://a:", "\\\n", " "]
)
def test_long_command_is_masked_in_time(piece: str, length: int) -> None:
    line = "token" + piece * ((length - 10) // len(piece)) + "\n"
    began = time.process_time()
    masked_command(line * (2**18 // len(line)))
    assert time.process_time() - began < 8.0


def test_long_line_with_possible_secret_is_masked() -> None:
    assert masked_line("+" + "x = 1; " * 2000 + 'token = "hunter22"') == ("+***", 1)
    assert masked_line("+" + "x = 1; " * 2000) == ("+" + "x = 1; " * 2000, 0)
