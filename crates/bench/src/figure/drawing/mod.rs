//! Pictures: panels side by side, as SVG.
//!
//! | file | job |
//! |---|---|
//! | `panel` | what is drawn: curves, bars or cells |
//! | `paint` | draws it on any canvas |

mod paint;
pub(super) mod panel;

use anyhow::{Context, Result};
use panel::Panel;
use plotters::prelude::{IntoDrawingArea, SVGBackend};
use std::path::Path;

/// Width and height of a picture, in the points of its SVG.
const SIZE: (u32, u32) = (1200, 560);

/// A picture.
pub(super) struct Picture<'a> {
    pub(super) title: String,
    /// Below the title: what it rests on.
    pub(super) subtitle: String,
    pub(super) panels: &'a [Panel],
}

impl Picture<'_> {
    /// Writes it as `DIR/NAME.svg`.
    pub(super) fn write(&self, directory: &Path, name: &str) -> Result<()> {
        let mut svg = String::new();
        paint::paint(
            self,
            &SVGBackend::with_string(&mut svg, SIZE).into_drawing_area(),
        )
        .with_context(|| format!("figure {name} cannot be drawn"))?;
        let file = directory.join(format!("{name}.svg"));
        std::fs::write(&file, svg).with_context(|| format!("cannot write {}", file.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use panel::{Bar, Cells, Curve, Look, Marks};

    fn panel(marks: Marks) -> Panel {
        Panel {
            title: "left & right".into(),
            x_label: "commands".into(),
            y_label: "ms".into(),
            marks,
        }
    }

    #[test]
    fn pictures_are_well_formed_and_not_empty() {
        let points = vec![(1.0, 2.0), (1000.0, 3.0)];
        let curve = |look| Curve {
            name: "one".into(),
            colour: 0,
            look,
            points: points.clone(),
        };
        let bar = |whisker| Bar {
            label: "2\n3".into(),
            colour: 1,
            height: 1e6,
            whisker,
        };
        let panels = [
            panel(Marks::Curves(vec![
                curve(Look::Solid),
                curve(Look::Dashed),
                curve(Look::Dots),
            ])),
            panel(Marks::Bars(vec![bar(None), bar(Some(8e5))])),
            panel(Marks::Cells(Cells {
                names: vec!["n0".into(), "n1".into()],
                values: vec![vec![0.0, 1.25], vec![0.5, 0.0]],
                most: 1.25,
            })),
        ];
        let picture = Picture {
            title: "a title".into(),
            subtitle: "simulated".into(),
            panels: &panels,
        };
        let directory = std::env::temp_dir().join(format!("ionian-drawing-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        picture.write(&directory, "x").unwrap();
        let svg = std::fs::read_to_string(directory.join("x.svg")).unwrap();
        std::fs::remove_dir_all(&directory).unwrap();
        assert!(svg.starts_with("<svg ") && svg.trim_end().ends_with("</svg>"));
        for text in [
            "a title",
            "simulated",
            "left &amp; right",
            "1M",
            "one",
            "n1",
            "1.25",
        ] {
            assert!(svg.contains(text), "{text}");
        }
        let count = |part: &str| svg.matches(part).count();
        assert!(count("#0072B2") >= 5, "the curves and their marks");
        assert!(count("#D55E00") >= 2, "the bars");
    }
}
