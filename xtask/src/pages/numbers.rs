//! Numbers in pages that come from files: a comment before a number says which one it is.
//!
//! ```text
//! <!-- from docs/figures/28a.csv: rows[series=MultiPaxos&measure=projected].commands_per_second; 3 digits -->742,000
//! ```
//!
//! names a JSON or CSV file of the repository and a value in it (the lines of a CSV file are the
//! array `rows`): keys with dots between them,
//! `[key=value]` or `[key=value&key=value]` for the items of an array of which that is true (with
//! dots behind the value: that begin so), `[]` for all. Of several values it is the largest, or the
//! median if the path has that word before it. `A / B` divides two values, of which each may be a
//! number; `* N` multiplies. An object of numbers counts as their sum. Behind `;` stands how the
//! number is written: `N digits` that count, the rest zeros, or `N decimals`; `at least N` and `at
//! most N` write `yes` or `**missed**` in place of it. The comment is not shown, and where what
//! stands there differs from the file, the gate fails.

use serde_json::{Number, Value};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

const OPENING: &str = "<!-- from ";
const CLOSING: &str = " -->";
/// The two verdicts.
const MET: &str = "yes";
const MISSED: &str = "**missed**";

/// A page that was looked through.
pub(super) struct Checked {
    /// How many numbers are marked.
    pub(super) count: usize,
    /// Those that are wrong.
    pub(super) faults: Vec<String>,
    /// The page with the right ones.
    pub(super) text: String,
}

/// Compares all marked numbers of a page with their files.
pub(super) fn check(page: &str, repository: &Path) -> Result<Checked, String> {
    let mut files: BTreeMap<String, Value> = BTreeMap::new();
    let mut checked = Checked {
        count: 0,
        faults: Vec::new(),
        text: String::new(),
    };
    let mut rest = page;
    while let Some(at) = rest.find(OPENING) {
        let (before, marked) = rest.split_at(at);
        let end = marked.find(CLOSING).ok_or("a comment has no end")? + CLOSING.len();
        let (mark, after) = marked.split_at(end);
        let about = |error: String| format!("{mark}: {error}");
        let (file, formula) = mark[OPENING.len()..mark.len() - CLOSING.len()]
            .split_once(": ")
            .ok_or_else(|| about("must be <!-- from FILE: VALUE; FORM -->".into()))?;
        if !files.contains_key(file) {
            let text = fs::read_to_string(repository.join(file))
                .map_err(|error| about(error.to_string()))?;
            let values = match file.ends_with(".csv") {
                true => rows(&text).map_err(|error| about(error.to_string()))?,
                false => serde_json::from_str(&text).map_err(|error| about(error.to_string()))?,
            };
            files.insert(file.into(), values);
        }
        let right = written(&files[file], formula).map_err(about)?;
        let shown = shown(after);
        checked.count += 1;
        if shown != right {
            let line = page.len() - rest.len() + at;
            let line = page[..line].lines().count().max(1);
            checked.faults.push(format!(
                "line {line}: {shown:?} is {right} by {file}: {formula}"
            ));
        }
        checked.text += before;
        checked.text += mark;
        checked.text += &right;
        rest = &after[shown.len()..];
    }
    checked.text += rest;
    Ok(checked)
}

/// The lines of a CSV file as objects whose keys are the names of the columns. Empty cells are left
/// out.
fn rows(text: &str) -> Result<Value, csv::Error> {
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    let names = reader.headers()?.clone();
    let mut rows = Vec::new();
    for record in reader.records() {
        let record = record?;
        let cells = names
            .iter()
            .zip(&record)
            .filter(|(_, cell)| !cell.is_empty());
        let cells = cells.map(|(name, cell)| {
            let number = cell.parse().ok().and_then(Number::from_f64);
            (
                name.to_owned(),
                number.map_or_else(|| cell.into(), Value::Number),
            )
        });
        rows.push(Value::Object(cells.collect()));
    }
    Ok(serde_json::json!({ "rows": rows }))
}

/// What a page shows: a number or a verdict.
fn shown(after: &str) -> &str {
    if let Some(verdict) = [MET, MISSED]
        .into_iter()
        .find(|verdict| after.starts_with(verdict))
    {
        return verdict;
    }
    let length = after.find(|letter: char| !letter.is_ascii_digit() && !",.".contains(letter));
    // A full stop or a comma behind the number is the sentence's.
    after[..length.unwrap_or(after.len())].trim_end_matches(['.', ','])
}

/// The number, or the verdict, as a page shows it.
fn written(file: &Value, formula: &str) -> Result<String, String> {
    let (formula, form) = formula
        .rsplit_once("; ")
        .ok_or("the form is missing: ; N digits or ; N decimals")?;
    let (formula, factor) = match formula.rsplit_once(" * ") {
        Some((formula, factor)) => (
            formula,
            factor
                .parse()
                .map_err(|_| format!("{factor:?} is no number"))?,
        ),
        None => (formula, 1.0),
    };
    let value = match formula.split_once(" / ") {
        Some((over, under)) => find(file, over)? / find(file, under)?,
        None => find(file, formula)?,
    } * factor;
    if !value.is_finite() {
        return Err(format!("{formula} is {value}"));
    }
    let bound = |words: &str| form.strip_prefix(words).map(str::parse::<f64>);
    let verdict = |met: bool| if met { MET } else { MISSED }.to_owned();
    match (bound("at least "), bound("at most ")) {
        (Some(Ok(least)), _) => return Ok(verdict(value >= least)),
        (_, Some(Ok(most))) => return Ok(verdict(value <= most)),
        _ => {}
    }
    let (count, unit) = form.split_once(' ').unwrap_or_default();
    let count: usize = count
        .parse()
        .map_err(|_| format!("{form:?} is no form: N digits or N decimals"))?;
    match unit {
        "decimals" | "decimal" => Ok(grouped(&format!("{value:.count$}"))),
        "digits" | "digit" => {
            let magnitude = if value == 0.0 {
                0
            } else {
                value.abs().log10().floor() as i32 + 1
            };
            let step = 10f64.powi(magnitude - count as i32);
            let rounded = (value / step).round() * step;
            let decimals = usize::try_from(count as i32 - magnitude).unwrap_or(0);
            Ok(grouped(&format!("{rounded:.decimals$}")))
        }
        _ => Err(format!("{form:?} is no form: N digits or N decimals")),
    }
}

/// With a comma between thousands.
fn grouped(number: &str) -> String {
    let (whole, fraction) = number.split_at(number.find('.').unwrap_or(number.len()));
    let mut text = String::new();
    for (place, digit) in whole.char_indices() {
        if place > 0 && (whole.len() - place).is_multiple_of(3) && !text.ends_with('-') {
            text.push(',');
        }
        text.push(digit);
    }
    text + fraction
}

/// The largest, or the median, of the values that a path leads to.
fn find(file: &Value, path: &str) -> Result<f64, String> {
    if let Ok(number) = path.trim().parse() {
        return Ok(number);
    }
    let (is_median, steps) = match path.trim().strip_prefix("median ") {
        Some(path) => (true, steps(path)),
        None => (false, steps(path.trim())),
    };
    let mut found = vec![file];
    for step in steps {
        let next: Vec<&Value> = match step {
            Step::Key(key) => found.iter().filter_map(|value| value.get(key)).collect(),
            Step::Where(conditions) => {
                let conditions = conditions
                    .split('&')
                    .filter(|condition| !condition.is_empty());
                let conditions: Vec<(&str, &str)> = conditions
                    .map(|condition| condition.split_once('=').unwrap_or((condition, "")))
                    .collect();
                let items = found.iter().filter_map(|value| value.as_array()).flatten();
                items
                    .filter(|item| {
                        conditions
                            .iter()
                            .all(|(key, wanted)| is(item.get(key), wanted))
                    })
                    .collect()
            }
        };
        if next.is_empty() {
            return Err(format!("{path}: nothing is there"));
        }
        found = next;
    }
    let number = |value: &Value| match value {
        Value::Object(parts) => parts.values().map(Value::as_f64).sum(),
        other => other.as_f64(),
    };
    let numbers: Option<Vec<f64>> = found.into_iter().map(number).collect();
    let mut numbers = numbers.ok_or_else(|| format!("{path} is no number"))?;
    numbers.sort_by(f64::total_cmp);
    let place = if is_median {
        numbers.len() / 2
    } else {
        numbers.len() - 1
    };
    numbers
        .get(place)
        .copied()
        .ok_or_else(|| format!("{path}: nothing is there"))
}

fn is(value: Option<&Value>, wanted: &str) -> bool {
    match value {
        Some(Value::String(text)) => match wanted.strip_suffix("...") {
            Some(beginning) => text.starts_with(beginning),
            None => text == wanted,
        },
        Some(Value::Bool(truth)) => wanted.parse() == Ok(*truth),
        Some(other) => other
            .as_f64()
            .is_some_and(|number| wanted.parse() == Ok(number)),
        None => false,
    }
}

enum Step<'a> {
    Key(&'a str),
    Where(&'a str),
}

/// `a.b[c=d].e` in its parts.
fn steps(path: &str) -> Vec<Step<'_>> {
    let mut steps = Vec::new();
    let mut rest = path;
    while !rest.is_empty() {
        if let Some(conditions) = rest.strip_prefix('[') {
            let (conditions, after) = conditions.split_once(']').unwrap_or((conditions, ""));
            steps.push(Step::Where(conditions));
            rest = after;
        } else {
            let key = rest.strip_prefix('.').unwrap_or(rest);
            let end = key.find(['.', '[']).unwrap_or(key.len());
            steps.push(Step::Key(&key[..end]));
            rest = &key[end..];
        }
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    /// A folder with one file, deleted in the end.
    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let folder =
                std::env::temp_dir().join(format!("ionian-numbers-{name}-{}", std::process::id()));
            fs::create_dir_all(&folder).unwrap();
            let text = r#"{"points": [{"series": "a", "n": 1, "rate": 742010.57}, {"series": "a", "n": 2, "rate": 9.5},
                           {"series": "b", "n": 1, "rate": 2801536.2}], "cost": {"us": 0.23916}}"#;
            fs::write(folder.join("f.json"), text).unwrap();
            Folder(folder)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_number_that_differs_is_found_and_written_anew() {
        let folder = Folder::new("differs");
        let page = "A <!-- from f.json: points[series=a].rate; 3 digits -->742,000, B is \
                    <!-- from f.json: points[series=b&n=1].rate / points[series=a&n=1].rate; 1 decimals -->4.3 times.";
        let checked = check(page, &folder.0).unwrap();
        assert_eq!(checked.count, 2);
        assert_eq!(checked.faults.len(), 1, "{:?}", checked.faults);
        assert!(
            checked.faults[0].contains("\"4.3\" is 3.8"),
            "{:?}",
            checked.faults
        );
        assert_eq!(checked.text, page.replace("4.3", "3.8"));
        assert!(check(&checked.text, &folder.0).unwrap().faults.is_empty());
    }

    #[test]
    fn forms() {
        let file: Value = serde_json::json!({ "big": 2801536.2, "small": 0.23916, "half": 96.46, "parts": { "a": 1, "b": 2.5 }, "names": [{ "name": "abc", "n": 7, "new": true }, { "name": "abd", "n": 8, "new": false }],
                                            "rounds": [{ "n": 3 }, { "n": 1 }, { "n": 2 }] });
        let form = |formula: &str| written(&file, formula).unwrap();
        assert_eq!(form("big; 3 digits"), "2,800,000");
        assert_eq!(form("big; 0 decimals"), "2,801,536");
        assert_eq!(form("small; 2 digits"), "0.24");
        assert_eq!(form("small; 3 decimals"), "0.239");
        assert_eq!(form("half; 1 decimals"), "96.5");
        assert_eq!(form("small * 100; 0 decimals"), "24");
        assert_eq!(form("1 / small; 1 decimals"), "4.2");
        assert_eq!(form("rounds[].n; 0 decimals"), "3");
        assert_eq!(form("names[new=true].n; 0 decimals"), "7");
        assert_eq!(form("names[name=ab...].n; 0 decimals"), "8");
        assert_eq!(form("median rounds[].n; 0 decimals"), "2");
        assert_eq!(form("parts; 1 decimals"), "3.5");
        assert_eq!(
            (form("half; at least 96.46"), form("half; at least 96.47")),
            ("yes".into(), "**missed**".into())
        );
        assert_eq!(
            (form("half; at most 96.46"), form("half; at most 96.45")),
            ("yes".into(), "**missed**".into())
        );
        assert!(written(&file, "half; at most all").is_err());
    }

    #[test]
    fn values_of_a_csv_file_are_found_by_the_names_of_its_columns() {
        let folder = Folder::new("csv");
        fs::write(
            folder.0.join("f.csv"),
            "series,n,rate\n\"a, quoted\",1,742010\nb,,9.5\n",
        )
        .unwrap();
        let mark = |path: &str, shown: &str| format!("<!-- from f.csv: {path} -->{shown}");
        let right = mark("rows[series=a, quoted&n=1].rate; 3 digits", "742,000");
        assert!(check(&right, &folder.0).unwrap().faults.is_empty());
        let wrong = mark("rows[series=b].rate; 1 decimals", "9.4");
        assert_eq!(check(&wrong, &folder.0).unwrap().faults.len(), 1);
        let missing = mark("rows[series=b].n; 1 decimals", "1");
        let error = check(&missing, &folder.0).err().unwrap();
        assert!(error.contains("nothing is there"), "{error}");
    }

    #[test]
    fn a_verdict_that_is_not_the_files_is_written_anew() {
        let folder = Folder::new("verdicts");
        let page = "| <!-- from f.json: cost.us; at most 0.2 -->yes, <!-- from f.json: cost.us; at least 0.2 -->**missed** |";
        let checked = check(page, &folder.0).unwrap();
        assert_eq!(
            (checked.count, checked.faults.len()),
            (2, 2),
            "{:?}",
            checked.faults
        );
        assert!(
            checked.text.contains("at most 0.2 -->**missed**, ")
                && checked.text.ends_with("-->yes |"),
            "{}",
            checked.text
        );
        assert!(check(&checked.text, &folder.0).unwrap().faults.is_empty());
    }

    #[test]
    fn a_mark_that_leads_nowhere_is_an_error() {
        let folder = Folder::new("nowhere");
        let error = |mark: &str| {
            check(&format!("<!-- from {mark} -->1"), &folder.0)
                .err()
                .unwrap()
        };
        assert!(error("g.json: x; 1 digits").contains("g.json"));
        assert!(error("f.json: points[series=c].rate; 1 digits").contains("nothing is there"));
        assert!(error("f.json: points; 1 digits").contains("is no number"));
        assert!(error("f.json: cost.us").contains("form is missing"));
        assert!(error("f.json: cost.us; 3 words").contains("no form"));
    }
}
