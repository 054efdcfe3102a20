"""Compiled passes over ordered divergences; a module of its own, so that the package does not import numba."""

from __future__ import annotations

from bregnet._core.compiling import compiled


def _mark_doubtful(values, order, near, share, class_of, classes, doubtful):  # pragma: no cover - compiled
    """Mark items in a run, each too near the next to tell them apart, of relevant and other items.

    Parameters
    ----------
    values, order : (m, n)
        Divergences, and the order of each row of them.
    near : (m,)
        Two are near each other if they differ by no more than this and `share` of the larger one.
    share : float
    class_of : (n,)
        The class of each item, -1 where it stands for items of several.
    classes : (m,)
        The class that is relevant for each query.
    doubtful : (m, n)
        False, and set to True for the items of such runs.
    """
    n = values.shape[1]
    for q in range(len(values)):
        start = 0
        while start < n:
            last, some, others = start, False, False
            while True:
                item = order[q, last]
                some |= class_of[item] < 0 or class_of[item] == classes[q]
                others |= class_of[item] < 0 or class_of[item] != classes[q]
                if last + 1 == n:
                    break
                following = values[q, order[q, last + 1]]
                if following - values[q, item] > near[q] + share * following:
                    break
                last += 1
            if last > start and some and others:
                for place in range(start, last + 1):
                    doubtful[q, order[q, place]] = True
            start = last + 1


def _find_ties(
    values, order, totals, class_of, several, hits_of, classes, own, query, before, size, hits_before, hits
):  # pragma: no cover - compiled
    """Write the ties with a relevant item among them to the last five arrays, and return how many there are.

    Parameters
    ----------
    values, order, class_of, classes
        As in `mark_doubtful`.
    totals : (n,)
        How many items each stands for.
    several, hits_of : (n,), (n_several, n_classes)
        For those of several classes the row of the number of items of each class.
    own : (m,) or (0,)
        The item that is the query itself, of its class, and does not count.
    """
    count, n = 0, values.shape[1]
    for q in range(len(values)):
        wanted, seen, found, place = classes[q], 0, 0, 0
        while place < n:
            value, items, relevant = values[q, order[q, place]], 0, 0
            while place < n and values[q, order[q, place]] == value:
                item = order[q, place]
                items += totals[item]
                if wanted >= 0 and class_of[item] == wanted:
                    relevant += totals[item]
                elif wanted >= 0 and class_of[item] < 0:
                    relevant += hits_of[several[item], wanted]
                if len(own) and own[q] == item:
                    items -= 1
                    relevant -= 1
                place += 1
            if relevant:
                query[count], before[count], size[count], hits_before[count], hits[count] = (
                    q,
                    seen,
                    items,
                    found,
                    relevant,
                )
                count += 1
            seen += items
            found += relevant
    return count


mark_doubtful = compiled(_mark_doubtful)
find_ties = compiled(_find_ties)
