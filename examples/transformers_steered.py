# SPDX-License-Identifier: Apache-2.0
"""Trains a small BERT to read digits (64 pixels are 64 tokens of 17 kinds) with the Hugging Face
Trainer, and can be steered while it runs. Nothing is downloaded.

python transformers_steered.py --fifo ctl &
kajitori status
kajitori set lr=1e-4
kajitori evaluate
kajitori extend --epochs 5
kajitori pause --level leave
kajitori resume RUN
echo stop > ctl
"""

import argparse
import pathlib

import numpy as np
import transformers

from kajitori.transformers import SteeringCallback

parser = argparse.ArgumentParser()
parser.add_argument("--fifo", help="take commands from a FIFO at this path too")
parser.add_argument("--epochs", type=int, default=10)
parser.add_argument("--lr", type=float, default=0.003, help="learning rate of AdamW")
parser.add_argument("--output", default="output", help="folder for checkpoints")
args = parser.parse_args()


def load():
    path = pathlib.Path(__file__).parent / "data" / "digits.csv"
    rows = np.loadtxt(path, delimiter=",", dtype="int64")
    data = [{"input_ids": row[:64], "labels": row[64]} for row in rows]
    return data[:1400], data[1400:]


def accuracy(evaluation):
    return {"accuracy": (evaluation.predictions.argmax(axis=1) == evaluation.label_ids).mean()}


transformers.set_seed(0)
config = transformers.BertConfig(
    vocab_size=17,
    hidden_size=16,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=32,
    max_position_embeddings=64,
    num_labels=10,
)
training, validation = load()
steering = SteeringCallback(fifo=args.fifo)
trainer = transformers.Trainer(
    transformers.BertForSequenceClassification(config),
    transformers.TrainingArguments(
        args.output,
        num_train_epochs=args.epochs,
        learning_rate=args.lr,
        per_device_train_batch_size=32,
        per_device_eval_batch_size=64,
        eval_strategy="epoch",
        save_strategy="no",
        logging_steps=10,
        report_to="none",
        disable_tqdm=True,
        use_cpu=True,
    ),
    train_dataset=training,
    eval_dataset=validation,
    compute_metrics=accuracy,
    callbacks=[steering],
)
trainer.train(resume_from_checkpoint=steering.resumed_from or None)

# The code after train runs, whether the training was stopped or came to its end.
how = "stopped" if steering.run.should_stop else "finished"
why = f" ({steering.run.stop_reason})" if steering.run.stop_reason else ""
result = trainer.evaluate()["eval_accuracy"]
print(f"{how}{why} after {steering.step} steps: accuracy {result:.3f}")
