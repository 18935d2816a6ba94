//! "Did you mean …?"

/// Damerau-Levenshtein distance (optimal string alignment): insertions, deletions, substitutions and
/// swaps of neighbours, one each.
pub fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut before_last = vec![0; b.len() + 1];
    let mut last: Vec<usize> = (0..=b.len()).collect();
    let mut row = vec![0; b.len() + 1];
    for i in 1..=a.len() {
        row[0] = i;
        for j in 1..=b.len() {
            let changed = usize::from(a[i - 1] != b[j - 1]);
            let mut least = (last[j] + 1).min(row[j - 1] + 1).min(last[j - 1] + changed);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                least = least.min(before_last[j - 2] + 1);
            }
            row[j] = least;
        }
        std::mem::swap(&mut before_last, &mut last);
        std::mem::swap(&mut last, &mut row);
    }
    last[b.len()]
}

/// The candidate nearest to `word`, where one is near enough to be what was meant: one change, or one for
/// every three characters. The first of equals.
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // Nobody mistypes a word this long, and the distance is quadratic.
    const LONGEST: usize = 64;
    let length = word.chars().count();
    if !(2..=LONGEST).contains(&length) {
        return None;
    }
    candidates
        .into_iter()
        .filter(|candidate| candidate.len() <= LONGEST && *candidate != word)
        .map(|candidate| (distance(word, candidate), candidate))
        .filter(|&(changes, candidate)| changes <= (length.max(candidate.chars().count()) / 3).max(1))
        .min_by_key(|&(changes, _)| changes)
        .map(|(_, candidate)| candidate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_each_kind_of_slip_once() {
        for (a, b, changes) in [
            ("", "", 0),
            ("", "abc", 3),
            ("state", "state", 0),
            ("state", "stat", 1),
            ("state", "sttate", 1),
            ("state", "stote", 1),
            ("state", "satte", 1),
            ("kitten", "sitting", 3),
        ] {
            assert_eq!(distance(a, b), changes, "{a} {b}");
            assert_eq!(distance(b, a), changes, "{b} {a}");
        }
    }

    #[test]
    fn suggests_only_what_is_near() {
        let words = ["interface", "ip", "errors", "version"];
        assert_eq!(nearest("interfcae", words), Some("interface"));
        assert_eq!(nearest("verison", words), Some("version"));
        assert_eq!(nearest("foo", words), None);
        assert_eq!(nearest("x", words), None);
    }
}
