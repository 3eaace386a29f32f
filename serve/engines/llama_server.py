"""Runs llama.cpp's server from the package xllamacpp until it is stopped: `python llama_server.py JSON`, with the key in the environment.

It imports only the standard library and xllamacpp, so that it starts in a second or two.
"""

import json
import os
import signal
import sys

import xllamacpp

KEY = "MODEGRAPH_LLAMA_KEY"
HTTP_THREADS = 64
"""Each open connection occupies a thread, even while idle (up to five seconds); with llama.cpp's default of six threads, a seventh connection has to wait."""


def main() -> None:
    """Open the model that the options name (llama.py), and serve it on 127.0.0.1."""
    options = json.loads(sys.argv[1])
    params = xllamacpp.CommonParams()
    params.model.path = options["file"]
    params.model_alias = {options["name"]}
    params.hostnames, params.port, params.api_keys = ["127.0.0.1"], options["port"], [os.environ[KEY]]
    params.n_threads_http = HTTP_THREADS
    params.n_ctx, params.n_parallel, params.kv_unified = options["context_tokens"], options["slots"], True
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = options["threads"]
    params.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_ENABLED
    params.cache_ram_mib = options["cache_mib"]
    params.lora_adapters = [xllamacpp.CommonAdapterLoraInfo(file, 1.0) for file in options["adapters"]]
    params.lora_init_without_apply = True
    # llama.cpp's defaults exclude unlikely tokens; here each request sets its own sampling.
    params.sampling.top_k, params.sampling.top_p, params.sampling.min_p = 0, 1.0, 0.0
    params.ui, params.endpoint_slots, params.endpoint_metrics, params.warmup = False, False, True, False
    params.verbosity = 1
    server = xllamacpp.Server(params)
    print(f"listening at {server.listening_address}", file=sys.stderr, flush=True)
    signal.pause()


if __name__ == "__main__":
    main()
