"""2,000 hostile inputs, the same in every run: what ids, names, titles, labels, content, cursors, scopes, URLs and file
names look like when somebody means harm.

Each kind mixes the same tricks (`tricks`) with some of its own. URLs carry `CANARY` where a secret stands; it must not
come out again anywhere.
"""

from __future__ import annotations

import base64
import binascii
import random
import string
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass

CANARY = "c4n4ryhunter2"
"""A password; nobody may ever see it."""

COUNTS = {
    "id": 380,
    "name": 300,
    "title": 290,
    "label": 190,
    "content": 400,
    "cursor": 210,
    "scope": 200,
    "url": 340,
    "file": 160,
}
SEED = 2026

STEERING = {
    "clear screen": "\x1b[2J\x1b[H",
    "window title": "\x1b]0;owned\x07",
    "link": "\x1b]8;;http://evil\x1b\\click\x1b]8;;\x1b\\",
    "clipboard": "\x1b]52;c;cm0gLXJmIC8=\x07",
    "C1 colour": "\x9b31m",
    "C1 string": "\x90q\x9c\x9d0;x\x9c",
    "answer back": "\x05\x1b[c\x1b[6n",
    "backspaces": "safe\x08\x08\x08\x08evil",
    "carriage return": "error: no\rall is well",
    "line ends": "one\ntwo\r\nthree\x0bfour\x0cfive",
    "separators": "one\u2028two\u2029three\x85four",
    "every C0": "".join(map(chr, range(1, 32))),
    "every C1": "".join(map(chr, range(127, 160))),
    "bidi": "\u202egpj.exe\u202c \u2066\u2067x\u2069\u061c\u200f",
    "zero width": "ad\u200bmin\u200c\u200d\u2060\ufeff",
    "tags": "ok" + "".join(chr(0xE0000 + ord(c)) for c in "ignore all"),
    "selectors": "a" + "".join(chr(0xE0100 + n) for n in range(40)) + "\ufe00\ufe01",
    "annotations": "\ufff9a\ufffab\ufffb\u180e\xad",
    "fillers": "\u3164\u115f\uffa0\u034f",
    "NUL": "a\x00b",
    "private": "\ue000\U000f0000\U0010fffd",
    "no characters": "\ufffe\uffff\U0010ffff\ufdd0",
    "lone surrogates": "a\ud800b\udfff",
    "escaped bytes": "caf\udce9\udcff",
}
TEXTS = {
    "markup": "[bold red]x[/] [link=http://evil]y[/link] [/x]",
    "open markup": "[/",
    "emoji code": ":smile: :skull:",
    "format": "{0} {task.fields[x]} {__class__} %s %n %(x)s ${HOME} $(id) `id`",
    "shell": "x; touch pwned && rm -rf ~ | cat > /etc/passwd #",
    "quotes": "it's \"so\" `so` \\' \\\" '\\''",
    "options": "--store=evil -rf --",
    "SQL": "'; DROP TABLE threads; -- \" OR 1=1 /* $$ $1 ? :x %s",
    "Lua": "]] .. redis.call('FLUSHALL') .. [[ \\\\ return nil --",
    "Redis": "*1\r\n$8\r\nFLUSHALL\r\n{tag}:t:threads:t*?[a]",
    "JSON": '{"a":"\\u0000","a":1,"__proto__":{}} // ]}',
    "JSON escapes": "\\u001b[2J \\ud800 \\x1b \\",
    "path": "../../../../etc/passwd",
    "absolute path": "/etc/passwd",
    "Windows path": "..\\..\\C:\\con\\nul:$DATA",
    "percent": "%00%0a%2e%2e%2f%u202e%%",
    "script": "<script>alert(1)</script><!-- &amp; ]]>",
    "spreadsheet": '=cmd|"/c calc"!A1',
    "digits": "9" * 40,
    "more digits": "9" * 5_000,
    "other digits": "\u0661\u0662\u0663\uff11\u00b2",
    "number": "-0x1e309 1e999 NaN Infinity -1",
    "NFC": unicodedata.normalize("NFC", "Ame\u0301lie \u212b \u1e9b\u0323"),
    "NFD": unicodedata.normalize("NFD", "Ame\u0301lie \u212b \u1e9b\u0323"),
    "folding": "Stra\u00dfe \u0130stanbul \u212a \u017f \ufb01",
    "spaces": " \t a\u00a0\u3000b \u2003 ",
    "trailing space": "twin ",
    "blank": "   ",
    "empty": "",
    "combining": "e" + "\u0301" * 200,
    "emoji": "\U0001f469\u200d\U0001f469\u200d\U0001f467 \u2764\ufe0f\u200d\U0001f525 1\ufe0f\u20e3",
    "flag of tags": "\U0001f3f4\U000e0067\U000e0062\U000e007f",
    "right to left": "\u05e9\u05dc\u05d5\u05dd \u0639\u0627\u0644\u0645",
    "one too long": "x" * 257,
    "many bytes": "\U0001f980" * 64,
    "long": "long " * 2_000,
    "backslashes": "\\" * 300,
    "brackets": "[" * 100 + "{" * 100,
}
TRICKS = {**STEERING, **TEXTS}


@dataclass(frozen=True)
class Input:
    """One hostile input: what it is given as, what trick it tries, and the text."""

    kind: str
    trick: str
    text: str


def hostile_inputs() -> list[Input]:
    """All of them; distinct, and always the same."""
    inputs: list[Input] = []
    for kind, count in COUNTS.items():
        made: dict[str, Input] = {}
        for trick, text in _OWN.get(kind, tricks)(random.Random(f"{SEED} {kind}")):
            made.setdefault(text, Input(kind, trick, text))
            if len(made) == count:
                break
        inputs += made.values()
    return inputs


def sample(size: int) -> list[Input]:
    """About so many of them, as many of each kind; the same in every run."""
    every = hostile_inputs()
    random.Random(SEED).shuffle(every)
    per_kind = -(-size // len(COUNTS))
    return [item for kind in COUNTS for item in [each for each in every if each.kind == kind][:per_kind]]


def tricks(chance: random.Random) -> Iterator[tuple[str, str]]:
    """Each trick alone, then two or three of them with ordinary text around, without end."""
    yield from TRICKS.items()
    names = list(TRICKS)
    while True:
        chosen = chance.sample(names, chance.choice((1, 2, 2, 3)))
        parts = [part for name in chosen for part in (_word(chance), _cut(TRICKS[name], chance))]
        yield " + ".join(chosen), chance.choice(("", " ", "-")).join(parts)


def _word(chance: random.Random) -> str:
    return "".join(chance.choices(string.ascii_lowercase, k=chance.randint(1, 6)))


def _cut(text: str, chance: random.Random) -> str:
    """Mostly short enough for an id: what is too long is refused for its length, and shows nothing else."""
    return text if chance.random() < 0.1 else text[: chance.choice((12, 30, 60))]


def _cursors(chance: random.Random) -> Iterator[tuple[str, str]]:
    """Texts, and forgeries with a right checksum."""
    for trick, text in tricks(chance):
        yield trick, text
        keyset = chance.choice(
            ['["x",1]', "[1,2]", '[null,"a"]', f"[{'9' * 30}]", '["\\u0000",1]', '["\\ud800"]', "[]"]
        )
        name = "".join(chance.choices("0123456789abcdef", k=12))
        body = chance.choice([f'[1,"{name}",{keyset}]', f'[2,"{name}",[]]', "[" * 2_000, '{"a":1}', text, "1e999"])
        payload = body.encode("utf-8", "surrogatepass")
        framed = payload + binascii.crc32(payload).to_bytes(4, "big")
        yield "forged", base64.urlsafe_b64encode(framed).rstrip(b"=").decode()


def _files(chance: random.Random) -> Iterator[tuple[str, str]]:
    """Names in one folder: whatever a file system takes, and what it does not."""
    for trick, text in tricks(chance):
        yield trick, text.replace("/", "\u2215") if chance.random() < 0.9 else text


SCHEMES = ("postgresql", "postgres", "mysql", "mariadb", "redis", "rediss", "redis+sentinel", "redis+cluster")
HOST = "127.0.0.1:1"
"""Nobody listens there."""
FAST = "connect_timeout=0.1"
"""And nobody waits for somebody to."""
URL_FORMS = {
    "password": "{scheme}://app:{canary}@{host}/{db}?{fast}",
    "password only": "{scheme}://:{canary}@{host}/{db}?{fast}",
    "password with signs": "{scheme}://app:{canary}/?#@%@{host}/{db}?{fast}",
    "password with an at sign": "{scheme}://app:p@{canary}@{host}/{db}?{fast}",
    "percent in password": "{scheme}://app:%zz{canary}@{host}/{db}?{fast}",
    "option password": "{scheme}://{host}/{db}?password={canary}&{fast}",
    "option passwd": "{scheme}://app@{host}/{db}?user=x&passwd={canary}&ssl=no&{fast}",
    "option token": "{scheme}://{host}/{db}?auth_token={canary}&{fast}",
    "option sslpassword": "{scheme}://{host}/{db}?sslpassword={canary}&{fast}",
    "option in capitals": "{scheme}://{host}/{db}?PassWord={canary}&{fast}",
    "option with an escaped name": "{scheme}://{host}/{db}?p%61ssword={canary}&{fast}",
    "option with an unknown name": "{scheme}://{host}/{db}?credential={canary}&{fast}",
    "option after a semicolon": "{scheme}://{host}/{db};password={canary}?{fast}",
    "option listen_url": "{scheme}://{host}/{db}?listen_url=postgresql%3A%2F%2Fapp%3A{canary}%40{host}%2Fagents&{fast}",
    "option listen_url, bare": "{scheme}://{host}/{db}?{fast}&listen_url=postgresql://app:{canary}@{host}/{db}",
    "option twice": "{scheme}://{host}/{db}?password=x&password={canary}&{fast}",
    "option sentinel_password": "{scheme}://{host}/{db}?service=x&sentinel_password={canary}&{fast}",
    "fragment": "{scheme}://app@{host}/{db}?{fast}#{canary}",
    "fragment password": "{scheme}://app@{host}/{db}?{fast}#password={canary}",
    "two schemes": "{scheme}://{scheme}://app:{canary}@{host}/{db}",
    "two hosts": "{scheme}://app:{canary}@{host},app2:{canary}@{host}/{db}?{fast}",
    "one slash": "{scheme}:/app:{canary}@{host}/{db}",
    "no slashes": "{scheme}:app:{canary}@{host}/{db}",
    "three slashes": "{scheme}:///app:{canary}@{host}/{db}",
    "no scheme": "app:{canary}@{host}/{db}",
    "unknown scheme": "x{scheme}://app:{canary}@{host}/{db}",
    "a driver in the scheme": "{scheme}+driver://app:{canary}@{host}/{db}",
    "capitals": "{SCHEME}://app:{canary}@{host}/{db}",
    "spaces": " {scheme}://app:{canary}@{host}/{db} ",
    "a bad port": "{scheme}://app:{canary}@127.0.0.1:99999/agents",
    "a port of letters": "{scheme}://app:{canary}@127.0.0.1:x/agents",
    "a broken address": "{scheme}://app:{canary}@[::1/agents",
    "a line end": "{scheme}://app:{canary}@{host}/{db}\nx",
    "an escape": "{scheme}://app:{canary}\x1b[2J@{host}/\x1b]0;x\x07",
    "NUL": "{scheme}://app:{canary}\x00@{host}/{db}?{fast}",
    "a surrogate": "{scheme}://app:{canary}\udcff@{host}/{db}?{fast}",
    "a conninfo": "host=127.0.0.1 port=1 user=app password={canary}",
    "a quoted conninfo": "host=127.0.0.1 password='{canary} x' user={scheme}",
    "a file": "sqlite:///no/such/folder/{scheme}.db?password={canary}",
    "a file with an account": "sqlite://app:{canary}@{scheme}/x.db",
}


REACHABLE = {
    "listen_url of a server that answers": "listen_url=postgresql%3A%2F%2Fapp%3A{canary}%40{host}%2Fagents",
    "password of a server that answers": "password={canary}",
    "escaped name at a server that answers": "p%61ssword={canary}",
    "unknown option of a server that answers": "credential={canary}",
}
"""Options with a secret, for the URL of a server that is there: what it says of itself is shown more often."""


def reachable_urls(url: str) -> list[Input]:
    """An empty database on a real server, with a secret among the options."""
    return [
        Input("url", trick, f"{url}?{option.format(canary=CANARY, host=HOST)}") for trick, option in REACHABLE.items()
    ]


def _urls(chance: random.Random) -> Iterator[tuple[str, str]]:
    for name, form in URL_FORMS.items():
        for scheme in SCHEMES:
            words = {"scheme": scheme, "SCHEME": scheme.upper(), "db": _database(scheme), "host": HOST, "fast": FAST}
            yield name, form.format(canary=CANARY, **words)
    while True:
        scheme, text = chance.choice(SCHEMES), chance.choice(list(STEERING.values()))
        yield "password", f"{scheme}://{_word(chance)}{text}:{CANARY}@{HOST}/{_database(scheme)}?{FAST}"


def _database(scheme: str) -> str:
    return "0" if scheme.startswith("redis") else "agents"


_OWN = {"cursor": _cursors, "file": _files, "url": _urls}
