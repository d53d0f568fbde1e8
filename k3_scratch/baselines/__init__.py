"""What K3's parts are compared with: other mixers, feed-forward parts and residuals, one file each, in one frame.

    frame.py       build("kda,kda,kda,mla", ffn="latent_moe", residual="attention"): a model from names
    mixers.py      MIXERS, the sequence mixers      recurrent_mixer.py: KDA's block around another recurrence
    ffns.py        FFNS, the feed-forward parts
    residuals.py   RESIDUALS, how sublayers are joined over depth
    table.py       all of them as one table
"""
