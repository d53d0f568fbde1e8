"""The lab: what each part of K3 is for, measured.

    experiments/    one small declarative file an experiment: question, variants, sizes, seeds, claims
    experiment.py   the words such a file is written in
    summary.py      claims that are judged by rule, mean and spread
    models.py       arguments -> a small model;      matching.py   are the variants equal but for one thing?
    trainer.py      train one small model until its curve is flat
    plan.py         the cells of an experiment and what they cost
    cells.py        one (variant, size, seed): run and kept on disk
    runner.py       all cells of an experiment in worker processes, then JSON and figure
    gallery.py      JSON -> figures/README.md
"""
