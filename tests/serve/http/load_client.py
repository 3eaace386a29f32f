"""Sends many simultaneous requests to a server, over plain sockets that are opened before the first request; prints [[status, seconds], …].

Run: python load_client.py URL CONCURRENT. The time of a request ends when the first line of its answer arrives.
"""

import asyncio
import json
import sys
import time
from urllib.parse import urlsplit

BODY = json.dumps({"model": "tiny", "messages": [{"role": "user", "content": "Who built the Lantern?"}]}).encode()


async def main(url: str, concurrent: int) -> None:
    """Open all connections, send a request on each simultaneously and print the results."""
    parts = urlsplit(url)
    connections = [await asyncio.open_connection(parts.hostname, parts.port) for _ in range(concurrent)]
    print(json.dumps(await asyncio.gather(*(ask(reader, writer) for reader, writer in connections))))


async def ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> tuple[int, float]:
    """Send one request; return its status and the seconds until the first line of the answer."""
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(BODY)}\r\n"
    started = time.perf_counter()
    writer.write(head.encode() + b"Content-Type: application/json\r\nConnection: close\r\n\r\n" + BODY)
    line = await reader.readline()
    seconds = time.perf_counter() - started
    await reader.read()
    writer.close()
    return int(line.split()[1]), seconds


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
