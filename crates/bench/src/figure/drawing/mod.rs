//! Pictures: panels side by side, as SVG and, by a canvas of our own that needs no fonts of the system, as PNG.
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
        let failed = |error: &dyn std::fmt::Display| anyhow!("figure {name} cannot be drawn: {error}");
        let mut svg = String::new();
        paint::paint(self, &SVGBackend::with_string(&mut svg, SIZE).into_drawing_area())
            .map_err(|error| failed(&error))?;
        let mut raster = Raster::new(SIZE);
        paint::paint(self, &raster.canvas().into_drawing_area()).map_err(|error| failed(&error))?;
        let png = raster.png()?;
        for (extension, bytes) in [("svg", svg.as_bytes()), ("png", &png)] {
            let file = directory.join(format!("{name}.{extension}"));
            std::fs::write(&file, bytes).with_context(|| format!("cannot write {}", file.display()))?;
        }
        Ok(())
    }
}
