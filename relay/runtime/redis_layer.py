"""Channel layer of several processes: messages are delivered in memory, and Redis carries them to other processes.

Sockets of this process never wait for Redis: a group message is put into their queues at once, and a thread publishes
it on one Redis channel that every process subscribes to. While Redis is away, each process goes on serving its own
sockets. The work of other processes is in the database: once Redis is back, every socket gets `RESYNC` and reads it.
Redis is away after a connection error, or when a beat that the subscriber publishes does not come back.
"""

import asyncio
import atexit
import contextlib
import json
import logging
import queue
import threading
import time
from typing import Any
from uuid import uuid4

from redis import Redis, RedisError
from redis.backoff import NoBackoff
from redis.retry import Retry

from relay.runtime.memory_layer import RESYNC, LocalChannelLayer, Message

logger = logging.getLogger(__name__)

ANSWER_SECONDS = 3.0  # how long one command may take; a hanging Redis is away after that
RETRY_SECONDS = 1.0
BEAT_SECONDS, SILENCE_SECONDS = 2.0, 5.0
START_SECONDS = 1.0  # how long the first socket of a process waits for the subscription
# Unsent messages; what does not fit is made up for by a `RESYNC` of the other processes.
MOST_WAITING, MOST_AT_ONCE = 10_000, 256

BEAT, ALL = b"beat", b"all"
_FAULTS = (RedisError, OSError)


class RedisChannelLayer(LocalChannelLayer):
    def __init__(self, *, url: str, prefix: str = "parley", **options: Any) -> None:
        super().__init__(**options)
        self.url = url
        self.publisher = Publisher(url, channel=f"{prefix}.groups")
        self._has_tried, self._stopping = threading.Event(), threading.Event()
        self._subscriber: threading.Thread | None = None

    async def new_channel(self, prefix: str = "local") -> str:
        """Returns once messages of other processes arrive, or Redis turns out to be away."""
        if not self._has_tried.is_set():
            if self._subscriber is None:
                self._subscriber = threading.Thread(target=self._subscribe, name="redis subscriber", daemon=True)
                self._subscriber.start()
            await asyncio.to_thread(self._has_tried.wait, START_SECONDS)
        return await super().new_channel(prefix)

    def send_to_group(self, group: str, message: Message) -> None:
        super().send_to_group(group, message)
        self.publisher.publish(group.encode(), message)

    def close(self) -> None:
        self._stopping.set()
        if self._subscriber is not None:
            self._subscriber.join(ANSWER_SECONDS)
        self.publisher.stop()

    # The subscriber's thread: it receives the messages of other processes and knows whether Redis is there.

    def _subscribe(self) -> None:
        while not self._stopping.is_set():
            try:
                with contextlib.closing(connect(self.url)) as client, client.pubsub() as pubsub:  # type: ignore[no-untyped-call]
                    pubsub.subscribe(self.publisher.channel)
                    self._receive_from(pubsub)
            except _FAULTS as error:
                self._set_degraded(True, type(error).__name__)
                self._has_tried.set()
                self._stopping.wait(RETRY_SECONDS)

    def _receive_from(self, pubsub: Any) -> None:
        received_at, beat_at = time.monotonic(), 0.0
        while not self._stopping.is_set():
            message = pubsub.get_message(timeout=0.25)
            now = time.monotonic()
            if message is not None and message["type"] == "subscribe":
                if not self.is_degraded:
                    self._notify_sockets()  # with a slow Redis, sockets were opened before this
                self._has_tried.set()
            elif message is not None and message["type"] == "message":
                process, group, body = message["data"].split(b"\n", 2)
                if process != self.publisher.process:
                    self._receive(group, body)
                elif group == BEAT:
                    received_at = now
                    self._set_degraded(False)
            if now >= beat_at:
                self.publisher.publish(BEAT, None)
                beat_at = now + BEAT_SECONDS
            if now - received_at > SILENCE_SECONDS:
                raise TimeoutError("no beat came back")

    def _receive(self, group: bytes, body: bytes) -> None:
        if group == ALL:
            self.send_to_process(RESYNC | {"id": body.decode()})
        elif (name := group.decode()) in self.groups:
            self._send_here(name, json.loads(body))

    def _set_degraded(self, is_degraded: bool, why: str = "") -> None:
        if self.is_degraded == is_degraded:
            return
        self.is_degraded = is_degraded
        if is_degraded:
            logger.warning("Redis is not available (%s). Other processes are not notified.", why)
        else:
            logger.info("Redis is back.")
        self._notify_sockets()

    def _notify_sockets(self) -> None:
        self.send_to_process({"type": "degraded.changed", "is_degraded": self.is_degraded})
        if not self.is_degraded:
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
                logger.warning("Redis accepts no messages (%s); other processes catch up later.", type(error).__name__)
            self.has_lost, self.retry_at = True, time.monotonic() + RETRY_SECONDS
        else:
            self.retry_at = 0.0


def connect(url: str) -> Redis:
    """Commands are never repeated by the client: a message that was published twice would arrive twice."""
    seconds = ANSWER_SECONDS
    return Redis.from_url(url, retry=Retry(NoBackoff(), 0), socket_timeout=seconds, socket_connect_timeout=seconds)
