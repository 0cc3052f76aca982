"""Websocket consumers: pages get HTML, programs get JSON."""
