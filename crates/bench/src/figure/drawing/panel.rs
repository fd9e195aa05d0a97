//! What is drawn in one panel.

/// Curves, bars or cells under a title.
pub(crate) struct Panel {
    pub(crate) title: String,
    pub(crate) x_label: String,
    pub(crate) y_label: String,
    pub(crate) marks: Marks,
}

/// What shows the numbers.
pub(crate) enum Marks {
    /// Points joined by lines.
    Curves(Vec<Curve>),
    /// Bars, one group a category.
    Bars(Vec<Bar>),
    /// A square for each pair, the darker the larger.
    Cells(Cells),
}

/// A table whose numbers are shades.
pub(crate) struct Cells {
    /// What the rows and the columns stand for.
    pub(crate) names: Vec<String>,
    /// By row and column.
    pub(crate) values: Vec<Vec<f64>>,
    /// The darkest.
    pub(crate) most: f64,
}

/// Points joined by lines.
pub(crate) struct Curve {
    pub(crate) name: String,
    /// Curves of one colour belong together.
    pub(crate) colour: usize,
    pub(crate) look: Look,
    pub(crate) points: Vec<(f64, f64)>,
}

/// How a curve looks.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Look {
    /// A line with dots.
    Solid,
    /// Dashes with circles.
    Dashed,
    /// Dots without a line.
    Dots,
}

/// A bar with a mark across it.
pub(crate) struct Bar {
    /// Below the bar, a line each.
    pub(crate) label: String,
    pub(crate) colour: usize,
    pub(crate) height: f64,
    /// From here to the height there is a whisker.
    pub(crate) whisker: Option<f64>,
}

impl Bar {
    /// One without a whisker.
    pub(crate) fn plain(label: impl Into<String>, colour: usize, height: f64) -> Self {
        Bar {
            label: label.into(),
            colour,
            height,
            whisker: None,
        }
    }
}
