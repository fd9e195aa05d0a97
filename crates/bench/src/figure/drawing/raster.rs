//! The canvas of a PNG. Its one font is part of this file's program: DejaVu Sans, the letters of
//! western languages (its licence lies beside it).

use ab_glyph::{Font, FontRef, PxScale, ScaleFont, point};
use anyhow::{Context, Result};
use plotters::style::text_anchor::{HPos, VPos};
use plotters_backend::{
    BackendColor, BackendCoord, BackendStyle, BackendTextStyle, DrawingBackend, DrawingErrorKind,
    FontTransform,
};
use std::convert::Infallible;
use tiny_skia::{Color, FillRule, Paint, PathBuilder, Pixmap, Rect, Stroke, Transform};

const FONT: &[u8] = include_bytes!("font/DejaVuSans-Latin.ttf");
/// Pixels for each point, each way.
const SCALE: f32 = 2.0;

/// The pixels.
pub(super) struct Raster {
    size: (u32, u32),
    pixels: Pixmap,
}

/// What draws on them.
pub(super) struct Canvas<'a> {
    raster: &'a mut Raster,
    font: FontRef<'static>,
}

impl Raster {
    /// A white sheet.
    pub(super) fn new(size: (u32, u32)) -> Self {
        let scaled = |points: u32| points * SCALE as u32;
        let mut pixels = Pixmap::new(scaled(size.0), scaled(size.1)).expect("a picture has a size");
        pixels.fill(Color::WHITE);
        Raster { size, pixels }
    }

    pub(super) fn canvas(&mut self) -> Canvas<'_> {
        Canvas {
            raster: self,
            font: FontRef::try_from_slice(FONT).expect("the font is well formed"),
        }
    }

    pub(super) fn png(&self) -> Result<Vec<u8>> {
        self.pixels
            .encode_png()
            .context("the picture cannot be encoded")
    }
}

type Drawn = Result<(), DrawingErrorKind<Infallible>>;

impl Canvas<'_> {
    fn paint(color: BackendColor) -> Paint<'static> {
        let mut paint = Paint::default();
        let (red, green, blue) = color.rgb;
        paint.set_color_rgba8(red, green, blue, (color.alpha * 255.0) as u8);
        paint
    }

    fn path(points: impl IntoIterator<Item = BackendCoord>) -> Option<tiny_skia::Path> {
        let mut path = PathBuilder::new();
        for (x, y) in points {
            // The middle of a pixel, so that a line of one point is sharp.
            let (x, y) = (x as f32 + 0.5, y as f32 + 0.5);
            if path.is_empty() {
                path.move_to(x, y)
            } else {
                path.line_to(x, y)
            }
        }
        path.finish()
    }

    fn stroke(&mut self, path: Option<tiny_skia::Path>, style: &impl BackendStyle) {
        let stroke = Stroke {
            width: style.stroke_width() as f32,
            ..Stroke::default()
        };
        if let Some(path) = path {
            let scale = Transform::from_scale(SCALE, SCALE);
            self.raster.pixels.stroke_path(
                &path,
                &Self::paint(style.color()),
                &stroke,
                scale,
                None,
            );
        }
    }

    fn fill(&mut self, path: Option<tiny_skia::Path>, color: BackendColor) {
        if let Some(path) = path {
            let scale = Transform::from_scale(SCALE, SCALE);
            self.raster.pixels.fill_path(
                &path,
                &Self::paint(color),
                FillRule::Winding,
                scale,
                None,
            );
        }
    }

    fn px(points: f64) -> PxScale {
        // What ab_glyph calls a scale is the height from ascent to descent; a size of a font is
        // that of its em.
        PxScale::from(points as f32 * 1.164)
    }

    /// Width and height of a text, unscaled.
    fn extent(&self, text: &str, points: f64) -> (f32, f32) {
        let font = self.font.as_scaled(Self::px(points));
        let mut width = 0.0;
        let mut before = None;
        for letter in text.chars().map(|letter| font.glyph_id(letter)) {
            width +=
                before.map_or(0.0, |before| font.kern(before, letter)) + font.h_advance(letter);
            before = Some(letter);
        }
        (width, font.height())
    }

    /// Darkens a pixel by the part of it that a letter covers.
    fn cover(&mut self, (x, y): (f32, f32), color: BackendColor, coverage: f32) {
        if let Some(dot) = Rect::from_xywh(x.round(), y.round(), 1.0, 1.0) {
            let faint = BackendColor {
                alpha: color.alpha * f64::from(coverage.min(1.0)),
                ..color
            };
            self.raster
                .pixels
                .fill_rect(dot, &Self::paint(faint), Transform::identity(), None);
        }
    }
}

impl DrawingBackend for Canvas<'_> {
    type ErrorType = Infallible;

    fn get_size(&self) -> (u32, u32) {
        self.raster.size
    }

    fn ensure_prepared(&mut self) -> Drawn {
        Ok(())
    }

    fn present(&mut self) -> Drawn {
        Ok(())
    }

    fn draw_pixel(&mut self, at: BackendCoord, color: BackendColor) -> Drawn {
        self.draw_rect(at, (at.0 + 1, at.1 + 1), &color, true)
    }

    fn draw_line<S: BackendStyle>(
        &mut self,
        from: BackendCoord,
        to: BackendCoord,
        style: &S,
    ) -> Drawn {
        self.stroke(Self::path([from, to]), style);
        Ok(())
    }

    fn draw_rect<S: BackendStyle>(
        &mut self,
        from: BackendCoord,
        to: BackendCoord,
        style: &S,
        fill: bool,
    ) -> Drawn {
        let corners = [from, (to.0, from.1), to, (from.0, to.1), from];
        match fill {
            true => self.fill(Self::path(corners), style.color()),
            false => self.stroke(Self::path(corners), style),
        }
        Ok(())
    }

    fn draw_path<S: BackendStyle, I: IntoIterator<Item = BackendCoord>>(
        &mut self,
        path: I,
        style: &S,
    ) -> Drawn {
        self.stroke(Self::path(path), style);
        Ok(())
    }

    fn draw_circle<S: BackendStyle>(
        &mut self,
        center: BackendCoord,
        radius: u32,
        style: &S,
        fill: bool,
    ) -> Drawn {
        let circle =
            PathBuilder::from_circle(center.0 as f32 + 0.5, center.1 as f32 + 0.5, radius as f32);
        match fill {
            true => self.fill(circle, style.color()),
            false => self.stroke(circle, style),
        }
        Ok(())
    }

    fn fill_polygon<S: BackendStyle, I: IntoIterator<Item = BackendCoord>>(
        &mut self,
        path: I,
        style: &S,
    ) -> Drawn {
        self.fill(Self::path(path), style.color());
        Ok(())
    }

    fn estimate_text_size<S: BackendTextStyle>(
        &self,
        text: &str,
        style: &S,
    ) -> Result<(u32, u32), DrawingErrorKind<Infallible>> {
        let (width, height) = self.extent(text, style.size());
        let (width, height) = (width.ceil() as u32, height.ceil() as u32);
        Ok(match style.transform() {
            FontTransform::Rotate90 | FontTransform::Rotate270 => (height, width),
            _ => (width, height),
        })
    }

    fn draw_text<S: BackendTextStyle>(&mut self, text: &str, style: &S, at: BackendCoord) -> Drawn {
        let (width, height) = self.extent(text, style.size());
        let anchor = style.anchor();
        let left = match anchor.h_pos {
            HPos::Left => 0.0,
            HPos::Center => -width / 2.0,
            HPos::Right => -width,
        };
        let top = match anchor.v_pos {
            VPos::Top => 0.0,
            VPos::Center => -height / 2.0,
            VPos::Bottom => -height,
        };
        let font = self.font.clone();
        let scaled = font.as_scaled(Self::px(style.size() * f64::from(SCALE)));
        let mut pen = point(left * SCALE, top * SCALE + scaled.ascent());
        let origin = (at.0 as f32 * SCALE, at.1 as f32 * SCALE);
        let mut before = None;
        for letter in text.chars() {
            let id = scaled.glyph_id(letter);
            pen.x += before.map_or(0.0, |before| scaled.kern(before, id));
            before = Some(id);
            if let Some(outline) =
                scaled.outline_glyph(id.with_scale_and_position(scaled.scale(), pen))
            {
                let corner = outline.px_bounds().min;
                outline.draw(|x, y, coverage| {
                    let (x, y) = (corner.x + x as f32, corner.y + y as f32);
                    let (x, y) = match style.transform() {
                        FontTransform::None => (x, y),
                        FontTransform::Rotate90 => (-y, x),
                        FontTransform::Rotate180 => (-x, -y),
                        FontTransform::Rotate270 => (y, -x),
                    };
                    self.cover((origin.0 + x, origin.1 + y), style.color(), coverage);
                });
            }
            pen.x += scaled.h_advance(id);
        }
        Ok(())
    }
}
