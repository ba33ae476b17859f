# SPDX-License-Identifier: Apache-2.0
"""Writes small learnable data sets for the example programs.

    python examples/synthetic_data.py clicks /tmp/clicks
"""

import pathlib
import sys

import numpy as np
import tensorflow as tf


def write_clicks(directory: pathlib.Path, num_train: int = 30000, num_eval: int = 4096) -> None:
    """Writes TFRecords of clicks: users, ads and query words add to the log odds.

    The scores of the words are weights; ids are lists, of 0 to 3 words.
    """
    random = np.random.default_rng(0)
    users, ads, words = (random.normal(0, deviation, size) for deviation, size in (
        (1.0, 2000), (1.0, 300), (0.7, 500)))
    for part, count in [(f"train-{shard}", num_train // 4) for shard in range(4)] + [
            ("eval-0", num_eval)]:
        with tf.io.TFRecordWriter(str(directory / f"{part}.tfrecord")) as writer:
            for _ in range(count):
                user, ad = random.integers(2000), random.integers(300)
                query = random.integers(0, 500, random.integers(0, 4))
                scores = random.uniform(0.5, 2, query.size)
                log_odds = users[user] + ads[ad] + words[query] @ scores
                clicked = random.random() < 1 / (1 + np.exp(-2 * log_odds))
                writer.write(_example(user_id=[user], ad_id=[ad], query_words=query,
                                      query_scores=scores, bid=[random.uniform()],
                                      clicked=[int(clicked)]))


def _example(**features) -> bytes:
    made = {}
    for name, values in features.items():
        values = np.asarray(values)
        made[name] = tf.train.Feature(float_list=tf.train.FloatList(value=values)) \
            if values.dtype.kind == "f" else \
            tf.train.Feature(int64_list=tf.train.Int64List(value=values))
    return tf.train.Example(features=tf.train.Features(feature=made)).SerializeToString()


def write_sessions(directory: pathlib.Path, count: int = 20000) -> None:
    """Writes `sessions.npz`: 1 to 5 items and one more, all of one of 10 groups (`item % 10`)."""
    random = np.random.default_rng(0)
    groups = random.integers(0, 10, [count, 1])
    items = groups + 10 * random.integers(0, 20, [count, 6])
    history, positive = items[:, :5], items[:, 5]
    lengths = random.integers(1, 6, [count, 1])
    history = np.where(np.arange(5) < lengths, history, -1)
    np.savez(directory / "sessions.npz", history=history, positive=positive)


def write_sentences(directory: pathlib.Path, num_train: int = 10000, num_dev: int = 400) -> None:
    """Writes `vocab.txt`, `train.tsv`, `dev.tsv`: sentences are good or bad by one word.

    "not" before the word turns its meaning round, so that the order of words counts.
    """
    random = np.random.default_rng(0)
    good, bad = ["good", "great", "fine"], ["bad", "awful", "poor"]
    others = [f"word{number}" for number in range(100)]
    (directory / "vocab.txt").write_text("\n".join([*good, *bad, "not", *others[:90]]) + "\n")

    def sentence() -> str:
        label, negated = random.integers(0, 2, 2)
        words = list(random.choice(others, random.integers(2, 8)))
        place = random.integers(0, len(words))
        words.insert(place, str(random.choice(good if label != negated else bad)))
        words.insert(place if negated else random.integers(place + 1, len(words) + 1), "not")
        return f"{label}\t{' '.join(words)}\n"

    for name, count in [("train", num_train), ("dev", num_dev)]:
        (directory / f"{name}.tsv").write_text("".join(sentence() for _ in range(count)))


def write_ratings(directory: pathlib.Path, count: int = 34096) -> None:
    """Writes `ratings.npz`: tastes times qualities, and what movies and tags add.

    The noise has a deviation of 0.2, ratings one of about 1.3.
    """
    random = np.random.default_rng(0)
    tastes, qualities = random.normal(0, 0.8, [400, 2]), random.normal(0, 0.8, [300, 2])
    biases, of_tags = random.normal(0, 0.7, 300), random.normal(0, 0.5, 40)
    user, movie = random.integers(0, 400, count), random.integers(0, 300, count)
    tags = np.where(random.random([count, 3]) < 0.7, random.integers(0, 40, [count, 3]), -1)
    tag_weights = random.uniform(0.5, 1.5, [count, 3])
    rating = (3 + (tastes[user] * qualities[movie]).sum(axis=1) + biases[movie]
              + (np.where(tags >= 0, of_tags[tags], 0) * tag_weights).sum(axis=1)
              + random.normal(0, 0.2, count))
    watched = np.where(np.arange(6) < random.integers(0, 7, [count, 1]),
                       random.integers(0, 300, [count, 6]), -1)
    np.savez(directory / "ratings.npz", user=user, movie=movie, watched=watched, tags=tags,
             tag_weights=tag_weights.astype(np.float32), rating=rating.astype(np.float32))


def write_purchases(directory: pathlib.Path, num_clicks: int = 30000,
                    num_purchases: int = 1000) -> None:
    """Writes `clicks.csv`, `purchases.csv`, `candidates.csv`: lines `user,product,label`.

    Products 1, 3, 5, … are liked. Purchases are of products below 50, candidates of the rest.
    """
    random = np.random.default_rng(0)

    def write(name: str, count: int, lowest: int, highest: int) -> None:
        users, products = random.integers(0, 300, count), random.integers(lowest, highest, count)
        labels = (random.random(count) < np.where(products % 2, 0.9, 0.1)).astype(int)
        lines = [f"{user},{product},{label}\n"
                 for user, product, label in zip(users, products, labels, strict=True)]
        (directory / f"{name}.csv").write_text("".join(lines))

    write("clicks", num_clicks, 0, 500)
    write("purchases", num_purchases, 0, 50)
    write("candidates", 1100, 50, 500)


def write_visits(directory: pathlib.Path, num_train: int = 20000, num_eval: int = 2048) -> None:
    """Writes `train.csv` and `eval.csv` of visits to a shop; ids begin with 1."""
    random = np.random.default_rng(0)
    of_country, of_device, of_hour = (random.normal(0, 1.2, size) for size in (200, 50, 25))
    for name, count in (("train", num_train), ("eval", num_eval)):
        country, device, hour = (random.integers(1, size, count) for size in (200, 50, 25))
        visits = random.poisson(3, count)
        log_odds = of_country[country] + of_device[device] + of_hour[hour] + 0.3 * (visits - 3)
        bought = (random.random(count) < 1 / (1 + np.exp(-log_odds))).astype(int)
        rows = np.stack([country, device, hour, visits, bought], axis=1)
        np.savetxt(directory / f"{name}.csv", rows, "%d", ",", comments="",
                   header="country,device,hour,visits,bought")


def write_interactions(directory: pathlib.Path, num_users: int = 320, num_items: int = 200,
                       per_user: int = 24) -> None:
    """Writes `interactions.npz`: the items of each user, in order; users and items have tastes.

    A user and an item of the same group (`user % 8`, `item % 8`) go together nine times in ten.
    """
    random = np.random.default_rng(0)
    of_group = random.random([num_users, per_user]) < 0.9
    items = np.stack([random.permutation(num_items // 8)[:per_user] for _ in range(num_users)])
    items = 8 * items + np.where(of_group, np.arange(num_users)[:, np.newaxis] % 8,
                                 random.integers(0, 8, [num_users, per_user]))
    np.savez(directory / "interactions.npz", items=items)


def write_feed(directory: pathlib.Path, count: int = 40000) -> None:
    """Writes `feed.npz`: who was shown which video of which author, and whether they finished it.

    Log odds add up: the user, the author, and how many of the last 5 videos were of the author.
    """
    random = np.random.default_rng(0)
    users, authors = random.normal(0, 1, 500), random.normal(0, 1, 100)
    user, video = random.integers(0, 500, count), random.integers(0, 1000, count)
    history = random.integers(0, 1000, [count, 5])
    again = random.random([count, 5]) < 0.3
    history = np.where(again, video[:, np.newaxis] % 100 + 100 * (history // 100), history)
    length = random.integers(0, 6, [count, 1])
    is_shown = np.arange(5) < length
    same = (history % 100 == video[:, np.newaxis] % 100) & is_shown
    log_odds = 1.5 * users[user] + 1.5 * authors[video % 100] + 1.5 * same.sum(1) - 1.5
    finished = random.random(count) < 1 / (1 + np.exp(-log_odds))
    np.savez(directory / "feed.npz", user=user, video=video, author=video % 100,
             history=np.where(is_shown, history % 100, -1), finished=finished.astype(np.float32))


def write_impressions(directory: pathlib.Path, num_train: int = 153600,
                      num_eval: int = 16384) -> None:
    """Writes `train.npz` and `eval.npz` of advertisements shown: numbers, categories, clicks.

    Categories follow Zipf's law; `sizes` says how many there are of each kind. Log odds add up:
    the categories, the numbers, and how well the first category goes with the second one.
    """
    random = np.random.default_rng(0)
    sizes = np.array([40000, 25000, 12000, 9000, 4000, 2500, 1200, 600, 100, 30, 10, 3])
    effects = [random.normal(0, 0.6, size) for size in sizes]
    tastes, qualities = (random.normal(0, 0.7, [size, 2]) for size in sizes[:2])
    slopes = random.normal(0, 0.3, 13)
    for name, count in (("train", num_train), ("eval", num_eval)):
        numbers = random.normal(0, 1, [count, 13])
        # The logarithm of a rank by Zipf's law is uniform.
        ranks = np.floor((sizes + 1) ** random.random([count, len(sizes)])).astype(np.int32) - 1
        categories = np.minimum(ranks, sizes - 1).astype(np.int32)
        log_odds = numbers @ slopes - 1 + sum(
            effect[categories[:, kind]] for kind, effect in enumerate(effects)) + (
            tastes[categories[:, 0]] * qualities[categories[:, 1]]).sum(1)
        clicked = random.random(count) < 1 / (1 + np.exp(-log_odds))
        np.savez(directory / f"{name}.npz", sizes=sizes, categories=categories,
                 numbers=np.exp(numbers).astype(np.float32),
                 clicked=clicked.astype(np.float32))


def write_images(directory: pathlib.Path, count: int = 4096) -> None:
    """Writes `images.npz`: noise, with one of ten 5 × 5 patterns about the middle."""
    random = np.random.default_rng(0)
    patterns = random.choice([-1.0, 1.0], [10, 5, 5])
    labels = random.integers(0, 10, count)
    images = random.normal(0, 0.5, [count, 16, 16])
    for image, label in zip(images, labels, strict=True):
        row, column = random.integers(4, 8, 2)
        image[row:row + 5, column:column + 5] += 2 * patterns[label]
    np.savez(directory / "images.npz", images=images[..., np.newaxis].astype(np.float32),
             labels=labels.astype(np.int32))


WRITERS = {"clicks": write_clicks, "sessions": write_sessions, "sentences": write_sentences,
           "ratings": write_ratings, "purchases": write_purchases, "visits": write_visits,
           "interactions": write_interactions, "feed": write_feed, "impressions": write_impressions,
           "images": write_images}


def main(arguments: list[str]) -> None:
    """Writes the data named first into the directory named second."""
    if len(arguments) != 2 or arguments[0] not in WRITERS:
        sys.exit(f"usage: python examples/synthetic_data.py {{{','.join(WRITERS)}}} DIRECTORY")
    name, directory = arguments[0], pathlib.Path(arguments[1])
    directory.mkdir(parents=True, exist_ok=True)
    WRITERS[name](directory)


if __name__ == "__main__":
    main(sys.argv[1:])
