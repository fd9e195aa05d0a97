//! Pictures: panels side by side, as SVG and, by a canvas of our own that needs no fonts of the
//! system, as PNG.
//!
//! | file | job |
//! |---|---|
//! | `panel` | what is drawn: curves or bars |
//! | `paint` | draws it on any canvas |
//! | `raster` | the canvas of a PNG |

mod paint;
pub(super) mod panel;
mod raster;

use anyhow::{Context, Result, anyhow};
use panel::Panel;
use plotters::prelude::{IntoDrawingArea, SVGBackend};
use raster::Raster;
use std::path::Path;

/// Width and height of a picture, in the points of its SVG; its PNG has twice as many each way.
const SIZE: (u32, u32) = (1200, 560);

/// A picture.
pub(super) struct Picture<'a> {
    pub(super) title: String,
    /// Below the title: what it rests on.
    pub(super) subtitle: String,
    pub(super) panels: &'a [Panel],
}

impl Picture<'_> {
    /// Writes it as `DIR/NAME.svg` and `DIR/NAME.png`.
    pub(super) fn write(&self, directory: &Path, name: &str) -> Result<()> {
        let failed =
            |error: &dyn std::fmt::Display| anyhow!("figure {name} cannot be drawn: {error}");
        let mut svg = String::new();
        paint::paint(
            self,
            &SVGBackend::with_string(&mut svg, SIZE).into_drawing_area(),
        )
        .map_err(|error| failed(&error))?;
        let mut raster = Raster::new(SIZE);
        paint::paint(self, &raster.canvas().into_drawing_area()).map_err(|error| failed(&error))?;
        let png = raster.png()?;
        for (extension, bytes) in [("svg", svg.as_bytes()), ("png", &png)] {
            let file = directory.join(format!("{name}.{extension}"));
            std::fs::write(&file, bytes)
                .with_context(|| format!("cannot write {}", file.display()))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use panel::{Bar, Curve, Look, Marks};
    use tiny_skia::Pixmap;

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
        let png = Pixmap::load_png(directory.join("x.png")).unwrap();
        std::fs::remove_dir_all(&directory).unwrap();
        assert!(svg.starts_with("<svg ") && svg.trim_end().ends_with("</svg>"));
        for text in ["a title", "simulated", "left &amp; right", "1M", "one"] {
            assert!(svg.contains(text), "{text}");
        }
        assert_eq!((png.width(), png.height()), (2 * SIZE.0, 2 * SIZE.1));
        let is = |red, green, blue| {
            png.pixels()
                .iter()
                .filter(|pixel| (pixel.red(), pixel.green(), pixel.blue()) == (red, green, blue))
                .count()
        };
        assert!(is(0, 114, 178) > 500, "curves are drawn");
        assert!(is(0, 0, 0) > 500, "letters are drawn");
        assert!(is(255, 255, 255) > 1_000_000);
    }
}
