"""Makes a Markdown table of the JSON lines that the clients' benchmarks print."""

import json
import statistics
import sys
from collections import defaultdict

NAMES = {"python": "Python, redis-py", "java": "Java, Jedis", "php": "PHP, phpredis"}

# Per language and contestant, a figure a line: one of each round, or their median.
figures: dict[tuple[str, str, str], list[float]] = defaultdict(list)
for line in map(json.loads, sys.stdin):
    for figure in ("p50_us", "p99_us", "per_second"):
        if figure in line:
            figures[line["lang"], line["what"], figure].append(line[figure])


def ratio(lang: str, one: str, other: str, figure: str) -> str:
    pairs = zip(figures[lang, one, figure], figures[lang, other, figure])
    return f"{statistics.median(a / b for a, b in pairs):.2f}"


def median(lang: str, what: str, figure: str) -> str:
    value = statistics.median(figures[lang, what, figure])
    return f"{value:,.0f}" if value >= 1000 else f"{value:.1f}"


print("| client, Redis client | p50 µs | p99 µs | p50 ÷ ping | p50 of Redis ÷ p50 | 8 processes, calls/s | ÷ Redis client | ping ÷ Redis client |")
print("|---|--:|--:|--:|--:|--:|--:|--:|")
for lang, name in NAMES.items():
    if figures[lang, "agent", "p50_us"]:
        cells = [
            name,
            median(lang, "agent", "p50_us"),
            median(lang, "agent", "p99_us"),
            ratio(lang, "agent", "ping", "p50_us"),
            ratio(lang, "redis", "agent", "p50_us"),
            median(lang, "agent", "per_second"),
            ratio(lang, "agent", "redis", "per_second"),
            ratio(lang, "ping", "redis", "per_second"),
        ]
        print("|", " | ".join(cells), "|")
