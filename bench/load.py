"""The bulk loader: a record of any size, made of plausible talk, through the same drafts and rows as `append`.

A third of the talk is Chinese, a tenth of the answers call a tool. The same numbers give the same record.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from django.contrib.auth import get_user_model
from django.db import connection

from history.db.transactions import writing
from history.entries import Entry, ModelInput, ModelOutput, Text, ToolRequest, ToolResult, ToolResults, Usage
from history.models import Session
from history.record import recorder, writer
from history.record.row_builder import SessionDraft

LONG_SESSION = 10_000
SHORT_SESSION = 10
SMALL_OWNER = "small"
ENTRIES_TOGETHER = 2_000

_SYLLABLES = [first + second for first in "bdfgklmnprst" for second in "aeio"]
_HANZI = (
    "支付失败重试队列订单服务器配置数据历史消息用户模型工具结果错误超时网络请求响应缓存索引搜索中文会话记录导出导入权限审计密钥保留"
    "删除版本分支合并压缩摘要任务计划执行检查报告时间日期年月系统状态内存磁盘处理器负载平均今天昨天明天问题答案解释原因方法步骤例子"
    "代码函数变量测试部署回滚监控告警"
)


@dataclass(frozen=True)
class Loaded:
    long: Session
    short: Session
    small_owner: Any
    large_owner: Any
    seconds: float


def vocabulary(size: int = 20_000) -> list[str]:
    chance = random.Random(7)
    return ["".join(chance.choices(_SYLLABLES, k=chance.randint(2, 4))) for _ in range(size)]


class Talk:
    """Texts in which few words are common and most are rare."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.words = vocabulary()

    def english(self) -> str:
        places = (int(self.chance.paretovariate(0.9)) for _ in range(self.chance.randint(15, 60)))
        return " ".join(self.words[min(place, len(self.words)) - 1] for place in places)

    def chinese(self) -> str:
        return "".join(self.chance.choices(_HANZI, k=self.chance.randint(20, 110)))

    def text(self) -> str:
        return self.chinese() if self.chance.random() < 1 / 3 else self.english()

    def turns(self, messages: int, *, begun: datetime) -> Iterator[Entry]:
        """That many entries: questions, answers, and now and then a call with its result."""
        left, at = messages, begun
        while left > 0:
            at += timedelta(seconds=30)
            yield ModelInput(parts=(Text(text=self.text()),), at=at)
            left -= 1
            if left >= 3 and self.chance.random() < 0.1:
                yield from self._call(at)
                left -= 2
            if left > 0:
                usage = Usage(input_tokens=self.chance.randint(100, 9_000), output_tokens=self.chance.randint(5, 900))
                yield ModelOutput(parts=(Text(text=self.text()),), at=at, model=self._model(), usage=usage)
                left -= 1

    def _call(self, at: datetime) -> Iterator[Entry]:
        name = f"call-{self.chance.randrange(10**9)}"
        request = ToolRequest(call_id=name, name="sys_monitor", arguments='{"metric": "cpu"}')
        yield ModelOutput(parts=(request,), at=at, model=self._model())
        outcome = ToolResult(call_id=name, name="sys_monitor", parts=(Text(text=self.text()),), duration=0.5)
        yield ToolResults(results=(outcome,), at=at)

    def _model(self) -> str:
        return self.chance.choice(("claude-sonnet", "gpt", "gemini"))


def load(*, messages: int, sessions: int) -> Loaded:
    """Fill an empty, migrated database."""
    begin = time.perf_counter()
    owners = {name: get_user_model().objects.create_user(name) for name in (SMALL_OWNER, "large", "b", "c", "d", "e")}
    talk = Talk(seed=42)
    small = max(1, sessions // 1_000)
    each = max(2, (messages - LONG_SESSION - SHORT_SESSION) // max(1, sessions - 2))
    long, short = (fill([owners["large"]], talk, size)[0] for size in (LONG_SESSION, SHORT_SESSION))
    others = [name for name in owners if name != SMALL_OWNER]
    spread = random.Random(3)
    names = [
        SMALL_OWNER if number % (sessions // small) == 7 else spread.choice(others) for number in range(sessions - 2)
    ]
    together = max(1, ENTRIES_TOGETHER // each)
    for start in range(0, len(names), together):
        fill([owners[name] for name in names[start : start + together]], talk, each)
        _print_progress(LONG_SESSION + (start + together) * each, messages, begin)
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE")
    return Loaded(long, short, owners[SMALL_OWNER], owners["large"], time.perf_counter() - begin)


def fill(owners: Sequence[Any], talk: Talk, messages: int) -> list[Session]:
    """A session of so many entries for each of these owners, all of them in a few statements."""
    with writing():
        sessions = [_started(owner, talk) for owner in owners]
        drafts = {pk: SessionDraft(session) for pk, session in writer.lock(session.pk for session in sessions).items()}
        for session in sessions:
            draft = drafts[session.pk]
            for entry in talk.turns(messages, begun=session.created_at):
                draft.add(entry, after=draft.leaf)
                if len(draft.pending()) >= ENTRIES_TOGETHER:
                    writer.flush([draft])
        writer.flush(list(drafts.values()))
        writer.save_sessions([draft.session for draft in drafts.values()])
    return list(Session.objects.filter(pk__in=drafts).order_by("pk")) if len(owners) == 1 else []


def _started(owner: Any, talk: Talk) -> Session:
    begun = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(minutes=talk.chance.randrange(400_000))
    return recorder.start_session(owner=owner, created_at=begun, client="bench")


def _print_progress(done: int, messages: int, begin: float) -> None:
    rate = done / (time.perf_counter() - begin)
    print(f"\rloading: {done:,} of {messages:,} messages, {rate:,.0f}/s", end="", file=sys.stderr, flush=True)
