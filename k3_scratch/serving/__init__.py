"""Serving: what a conversation costs, and how not to compute the same prefix twice.

    hashes.py        names of prefixes, block by block
    index.py         which prefixes are kept, in how many bytes, and which go first; knows no tensors
    prefix_store.py  KDA states at some block edges and MLA latents of every block, copied out on a hit
    policies.py      at which edges a state is kept
    answering.py     one answer as a stream of tokens, with the store
    trace_replay.py  policies compared on a trace of requests, by arithmetic alone
    rollback.py      feeding tokens that may be taken back
    speculative.py   a small model guesses, the big one checks several guesses in one call
"""
