//! The measurements that the paper's authors published with its code.

/// One line of `published.csv`, at whose top is said what the columns are.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Row {
    pub(crate) figure: &'static str,
    pub(crate) series: &'static str,
    /// Acceptors in a grid, where the figure has both.
    pub(crate) grid: bool,
    pub(crate) clients: Option<usize>,
    pub(crate) batch: Option<usize>,
    pub(crate) value_bytes: Option<usize>,
    pub(crate) proxy_leaders: Option<usize>,
    pub(crate) replicas: Option<usize>,
    pub(crate) unbatchers: Option<usize>,
    pub(crate) read_fraction: Option<f64>,
    /// The part of the commands that are about the same key.
    pub(crate) skew: Option<f64>,
    pub(crate) p90: f64,
    pub(crate) mean: f64,
    pub(crate) p50_ms: Option<f64>,
    pub(crate) p99_ms: Option<f64>,
}

/// The rows of a figure.
pub(crate) fn rows(figure: &str) -> impl Iterator<Item = Row> {
    all().filter(move |row| row.figure == figure)
}

fn all() -> impl Iterator<Item = Row> {
    let mut lines = include_str!("published.csv")
        .lines()
        .filter(|line| !line.starts_with('#'));
    let head: Vec<&str> = lines.next().expect("a head").split(',').collect();
    lines.map(move |line| {
        let cells: Vec<&'static str> = line.split(',').collect();
        assert_eq!(cells.len(), head.len(), "{line}");
        let cell = |name: &str| {
            cells[head
                .iter()
                .position(|known| *known == name)
                .expect("a column of the file")]
        };
        let count = |name: &str| some(cell(name)).map(|text| text.parse().expect("a count"));
        let number = |name: &str| some(cell(name)).map(|text| text.parse().expect("a number"));
        Row {
            figure: cell("figure"),
            series: cell("series"),
            grid: cell("grid") == "2x2",
            clients: count("clients"),
            batch: count("batch"),
            value_bytes: count("value_bytes"),
            proxy_leaders: count("proxy_leaders"),
            replicas: count("replicas"),
            unbatchers: count("unbatchers"),
            read_fraction: number("read_fraction"),
            skew: number("skew"),
            p90: number("p90").expect("every row has one"),
            mean: number("mean").expect("every row has one"),
            p50_ms: number("p50_ms"),
            p99_ms: number("p99_ms"),
        }
    })
}

fn some(cell: &str) -> Option<&str> {
    (!cell.is_empty()).then_some(cell)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(figure: &str, series: &str) -> Vec<Row> {
        rows(figure).filter(|row| row.series == series).collect()
    }

    #[test]
    fn every_table_is_whole() {
        let counts = [
            ("28a", "multipaxos", 7),
            ("28a", "compartmentalized", 23),
            ("28a", "unreplicated", 10),
            ("28b", "multipaxos", 9),
            ("28b", "compartmentalized", 21),
            ("28b", "unreplicated", 21),
            ("29", "compartmentalized", 24),
            ("29", "unreplicated", 34),
            ("31a", "compartmentalized", 27),
            ("31b", "compartmentalized", 6),
            ("32a", "compartmentalized", 20),
            ("32b", "compartmentalized", 20),
            ("34a", "compartmentalized", 20),
            ("34b", "compartmentalized", 20),
            ("35", "craq", 9),
            ("35", "compartmentalized", 9),
            ("36", "scalog", 21),
            ("36", "compartmentalized", 21),
        ];
        for (figure, name, count) in counts {
            assert_eq!(series(figure, name).len(), count, "{figure} {name}");
        }
        assert_eq!(
            all().count(),
            counts.iter().map(|(.., count)| count).sum::<usize>()
        );
    }

    #[test]
    fn numbers_are_where_they_belong() {
        let last = |figure, name| series(figure, name).pop().unwrap();
        let row = last("28a", "multipaxos");
        assert_eq!(
            (row.clients, row.p90, row.mean),
            (Some(1000), 24849.0, 20997.0)
        );
        assert_eq!((row.p50_ms, row.p99_ms), (Some(31.06), Some(71.54)));
        let row = last("28a", "compartmentalized");
        assert_eq!((row.grid, row.p90), (true, 158316.0));
        let row = last("28b", "unreplicated");
        assert_eq!(
            (row.batch, row.clients, row.p90),
            (Some(100), Some(4000), 1037400.0)
        );
        let row = last("29", "compartmentalized");
        assert_eq!((row.value_bytes, row.p90), (Some(1000), 56221.0));
        let row = last("31a", "compartmentalized");
        assert_eq!(
            (row.proxy_leaders, row.replicas, row.mean),
            (Some(10), Some(4), 116989.0)
        );
        let row = last("31b", "compartmentalized");
        assert_eq!(
            (row.batch, row.unbatchers, row.p90),
            (Some(100), Some(5), 729362.0)
        );
        for (figure, p90) in [
            ("32a", 663947.0),
            ("32b", 361659.0),
            ("34a", 664289.0),
            ("34b", 687463.0),
        ] {
            let row = last(figure, "compartmentalized");
            assert_eq!(
                (row.read_fraction, row.replicas, row.p90),
                (Some(1.0), Some(6), p90)
            );
        }
        assert_eq!(series("32a", "compartmentalized")[0].p50_ms, None);
    }
}
