"""Channel layer of several processes: messages are delivered in memory, and Redis carries them to other processes.

Sockets of this process never wait for Redis: a group message is put into their queues at once, and a thread publishes
it on one Redis channel that every process subscribes to. While Redis is away, each process goes on serving its own
sockets. The work of other processes is in the database: once Redis is back, every socket gets `RESYNC` and reads it.

How an outage is noticed: the subscriber publishes a beat of its own every other second. A connection error, or a beat
that does not come back, means that Redis is away.
"""

import asyncio
import atexit
import json
import logging
import queue
import threading
import time
from collections.abc import Callable
from typing import Any
from uuid import uuid4

from redis import Redis, RedisError
from redis.backoff import NoBackoff
from redis.retry import Retry

from relay.runtime.memory_layer import RESYNC, LocalChannelLayer, Message

logger = logging.getLogger(__name__)

# How long one command may take; a hanging Redis is away after that.
ANSWER_SECONDS = 3.0
RETRY_SECONDS = 1.0
BEAT_SECONDS, SILENCE_SECONDS = 2.0, 5.0
# How long the first socket of a process waits for the subscription.
START_SECONDS = 1.0
# Unsent messages; what does not fit is made up for by a `RESYNC` of the other processes.
MOST_WAITING, MOST_AT_ONCE = 10_000, 256

BEAT, ALL = b"beat", b"all"
_FAULTS = (RedisError, OSError)


class RedisChannelLayer(LocalChannelLayer):
    def __init__(self, *, url: str, prefix: str = "parley", **options: Any) -> None:
        super().__init__(**options)
        self.publisher = Publisher(url, channel=f"{prefix}.groups")
        self.subscriber = Subscriber(url, self.publisher, receive=self._receive, change=self._change)

    @property
    def is_degraded(self) -> bool:
        return self.subscriber.is_away

    async def new_channel(self, prefix: str = "local") -> str:
        if not self.subscriber.is_started:
            await self.subscriber.start()
        return await super().new_channel(prefix)

    def send_to_group(self, group: str, message: Message) -> None:
        super().send_to_group(group, message)
        self.publisher.publish(group.encode(), message)

    def close(self) -> None:
        self.subscriber.stop()
        self.publisher.stop()

    def _receive(self, group: bytes, body: bytes) -> None:
        """A message of another process, in the subscriber's thread."""
        if group == ALL:
            self.send_to_process(RESYNC | {"id": body.decode()})
        elif (name := group.decode()) in self.groups:
            self._send_here(name, json.loads(body))

    def _change(self, *, is_away: bool) -> None:
        """Redis has gone or come back, in the subscriber's thread."""
        self.send_to_process({"type": "degraded.changed", "is_degraded": is_away})
        if not is_away:
            self.send_to_process(RESYNC | {"id": uuid4().hex})


class Publisher:
    """A thread that publishes messages in order. While Redis is away messages are dropped, and a resync is owed."""

    def __init__(self, url: str, *, channel: str) -> None:
        self.url, self.channel, self.process = url, channel, uuid4().hex.encode()
        self.waiting: queue.Queue[tuple[bytes, Message | None] | None] = queue.Queue(MOST_WAITING)
        self.has_lost = False
        self.retry_at = 0.0
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._client: Redis | None = None

    def publish(self, group: bytes, message: Message | None) -> None:
        """Never waits."""
        if self._thread is None:
            self._start()
        try:
            self.waiting.put_nowait((group, message))
        except queue.Full:
            self.has_lost = True

    def stop(self) -> None:
        """Publish what is waiting, if Redis takes it, and end."""
        thread, self._thread = self._thread, None
        atexit.unregister(self.stop)
        if thread is not None:
            try:
                self.waiting.put_nowait(None)
            except queue.Full:
                return
            thread.join(ANSWER_SECONDS)

    def _start(self) -> None:
        with self._lock:
            if self._thread is None:
                # A daemon, because a hanging Redis must not keep the process alive.
                self._thread = threading.Thread(target=self._run, name="redis publisher", daemon=True)
                self._thread.start()
                atexit.register(self.stop)

    def _run(self) -> None:
        while (first := self.waiting.get()) is not None:
            batch = [first]
            while len(batch) < MOST_AT_ONCE and not self.waiting.empty():
                following = self.waiting.get()
                if following is None:
                    self._publish(batch)
                    return
                batch.append(following)
            self._publish(batch)

    def _publish(self, batch: list[tuple[bytes, Message | None]]) -> None:
        if time.monotonic() < self.retry_at:
            self.has_lost = True
            return
        try:
            client = self._client = self._client or connect(self.url)
            pipeline = client.pipeline(transaction=False)
            owes, self.has_lost = self.has_lost, False
            if owes:
                pipeline.publish(self.channel, b"\n".join((self.process, ALL, uuid4().hex.encode())))
            for group, message in batch:
                body = b"" if message is None else json.dumps(message, separators=(",", ":")).encode()
                pipeline.publish(self.channel, b"\n".join((self.process, group, body)))
            pipeline.execute()
        except _FAULTS as error:
            if not self.retry_at:
                logger.warning("Redis does not take messages (%s); other processes catch up later.", _name(error))
            self.has_lost, self.retry_at = True, time.monotonic() + RETRY_SECONDS
        else:
            self.retry_at = 0.0


class Subscriber:
    """A thread that receives the messages of other processes and knows whether Redis is there."""

    def __init__(
        self, url: str, publisher: Publisher, *, receive: Callable[[bytes, bytes], None], change: Callable[..., None]
    ) -> None:
        self.url, self.publisher, self.receive, self.change = url, publisher, receive, change
        self.is_away = False
        self.has_tried = threading.Event()
        self.stopping = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def is_started(self) -> bool:
        return self.has_tried.is_set()

    async def start(self) -> None:
        """Returns once messages of other processes arrive, or Redis turns out to be away."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="redis subscriber", daemon=True)
            self._thread.start()
        await asyncio.to_thread(self.has_tried.wait, START_SECONDS)

    def stop(self) -> None:
        self.stopping.set()
        if self._thread is not None:
            self._thread.join(ANSWER_SECONDS)

    def _run(self) -> None:
        while not self.stopping.is_set():
            try:
                self._listen()
            except _FAULTS as error:
                self._set_away(True, _name(error))
                self.has_tried.set()
                self.stopping.wait(RETRY_SECONDS)

    def _listen(self) -> None:
        client = connect(self.url)
        try:
            with client.pubsub() as pubsub:  # type: ignore[no-untyped-call]
                pubsub.subscribe(self.publisher.channel)
                self._receive_from(pubsub)
        finally:
            client.close()

    def _receive_from(self, pubsub: Any) -> None:
        received_at, beat_at = time.monotonic(), 0.0
        while not self.stopping.is_set():
            message = pubsub.get_message(timeout=0.25)
            now = time.monotonic()
            if message is not None and message["type"] == "subscribe":
                if not self.is_away:
                    self.change(is_away=False)  # with a slow Redis, sockets were opened before this
                self.has_tried.set()
            elif message is not None and message["type"] == "message":
                process, group, body = message["data"].split(b"\n", 2)
                if process != self.publisher.process:
                    self.receive(group, body)
                elif group == BEAT:
                    received_at = now
                    self._set_away(False)
            if now >= beat_at:
                self.publisher.publish(BEAT, None)
                beat_at = now + BEAT_SECONDS
            if now - received_at > SILENCE_SECONDS:
                raise TimeoutError("no beat came back")

    def _set_away(self, is_away: bool, why: str = "") -> None:
        if self.is_away == is_away:
            return
        self.is_away = is_away
        if is_away:
            logger.warning("Redis is away (%s). This process serves its own sockets alone.", why)
        else:
            logger.info("Redis is back.")
        self.change(is_away=is_away)


def connect(url: str) -> Redis:
    """Commands are never repeated by the client: a message that was published twice would arrive twice."""
    patience: dict[str, Any] = {"socket_timeout": ANSWER_SECONDS, "socket_connect_timeout": ANSWER_SECONDS}
    return Redis.from_url(url, retry=Retry(NoBackoff(), 0), **patience)


def _name(error: BaseException) -> str:
    return type(error).__name__
