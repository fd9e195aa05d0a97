//! Draws panels on any canvas of plotters.

use super::super::point::short;
use super::Picture;
use super::panel::{Bar, Cells, Curve, Look, Marks, Panel};
use plotters::coord::Shift;
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

type Area<B> = DrawingArea<B, Shift>;
type Drawn<B> = Result<(), DrawingAreaErrorKind<<B as DrawingBackend>::ErrorType>>;
type Chart<'a, B> = ChartContext<'a, B, Cartesian2d<RangedCoordf64, RangedCoordf64>>;

const FONT: &str = "sans-serif";
/// Colours that people who see few of them tell apart (Okabe and Ito).
const COLOURS: [RGBColor; 7] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(230, 159, 0),
    RGBColor(90, 90, 90),
];
const HEADLINE: i32 = 62;
const LEGEND_LINE: i32 = 22;

fn colour(index: usize) -> RGBColor {
    COLOURS[index % COLOURS.len()]
}

pub(super) fn paint<B: DrawingBackend>(picture: &Picture, sheet: &Area<B>) -> Drawn<B> {
    sheet.fill(&WHITE)?;
    let (width, height) = sheet.dim_in_pixel();
    let centre = (width / 2) as i32;
    write(sheet, &picture.title, 22, BLACK, (centre, 10), HPos::Center)?;
    write(
        sheet,
        &picture.subtitle,
        14,
        RGBColor(90, 90, 90),
        (centre, 38),
        HPos::Center,
    )?;
    let legend = picture.panels.iter().map(legend_height).max().unwrap_or(0);
    let part = width as i32 / picture.panels.len().max(1) as i32;
    for (place, panel) in (0..).zip(picture.panels) {
        let area = sheet
            .clone()
            .shrink((place * part, HEADLINE), (part, height as i32 - HEADLINE));
        paint_panel(panel, &area, legend)?;
    }
    sheet.present()
}

fn write<B: DrawingBackend>(
    area: &Area<B>,
    text: &str,
    size: u32,
    color: RGBColor,
    at: (i32, i32),
    side: HPos,
) -> Drawn<B> {
    let style = (FONT, size)
        .into_text_style(area)
        .color(&color)
        .pos(Pos::new(side, VPos::Top));
    area.draw_text(text, &style, at)
}

fn legend_height(panel: &Panel) -> i32 {
    match &panel.marks {
        Marks::Curves(curves) => 8 + LEGEND_LINE * curves.len().div_ceil(2) as i32,
        Marks::Bars(_) | Marks::Cells(_) => 8,
    }
}

fn paint_panel<B: DrawingBackend>(panel: &Panel, area: &Area<B>, legend: i32) -> Drawn<B> {
    let (width, height) = area.dim_in_pixel();
    let below = match &panel.marks {
        Marks::Curves(_) | Marks::Cells(_) => 48,
        Marks::Bars(bars) => {
            24 + 15
                * bars
                    .iter()
                    .map(|bar| bar.label.lines().count())
                    .max()
                    .unwrap_or(0) as u32
        }
    };
    let (x_range, highest) = ranges(&panel.marks);
    let headroom = match &panel.marks {
        Marks::Cells(_) => 1.0,
        _ => 1.08,
    };
    let y_range = 0.0..(highest * headroom).max(1e-9);
    let plot = area
        .clone()
        .shrink((0, 0), (width as i32, height as i32 - legend));
    let mut chart = ChartBuilder::on(&plot)
        .caption(&panel.title, (FONT, 17))
        .margin_right(22)
        .margin_left(8)
        .x_label_area_size(below)
        .y_label_area_size(72)
        .build_cartesian_2d(x_range, y_range)?;
    let bars = !matches!(panel.marks, Marks::Curves(_));
    let mut mesh = chart.configure_mesh();
    mesh.x_desc(&*panel.x_label)
        .y_desc(&*panel.y_label)
        .axis_desc_style((FONT, 14))
        .label_style((FONT, 13));
    mesh.light_line_style(WHITE)
        .bold_line_style(RGBColor(225, 225, 225))
        .x_labels(7)
        .y_labels(8);
    mesh.x_label_formatter(&|x| short(*x))
        .y_label_formatter(&|y| short(*y));
    if bars {
        mesh.disable_x_mesh().x_labels(0);
    }
    if matches!(panel.marks, Marks::Cells(_)) {
        mesh.disable_y_mesh().y_labels(0);
    }
    mesh.draw()?;
    match &panel.marks {
        Marks::Curves(curves) => {
            for curve in curves {
                paint_curve(curve, &mut chart)?;
            }
            let top = height as i32 - legend;
            paint_legend(curves, area, top)
        }
        Marks::Bars(bars) => paint_bars(bars, &mut chart, &plot),
        Marks::Cells(cells) => paint_cells(cells, &mut chart, &plot),
    }
}

/// The range of x and the highest y.
fn ranges(marks: &Marks) -> (std::ops::Range<f64>, f64) {
    match marks {
        Marks::Curves(curves) => {
            let points = || curves.iter().flat_map(|curve| &curve.points);
            let right = points().map(|(x, _)| *x).fold(0.0, f64::max);
            // Counts of replicas begin where they do, amounts at zero.
            let left = points().map(|(x, _)| *x).fold(right, f64::min);
            let left = if right < 100.0 {
                (left - 0.3).max(0.0)
            } else {
                0.0
            };
            let margin = if right < 100.0 { 0.3 } else { right * 0.04 };
            (
                left..right + margin,
                points().map(|(_, y)| *y).fold(0.0, f64::max),
            )
        }
        Marks::Bars(bars) => (
            0.0..bars.len() as f64,
            bars.iter().map(Bar::top).fold(0.0, f64::max),
        ),
        Marks::Cells(cells) => (0.0..cells.names.len() as f64, cells.names.len() as f64),
    }
}

impl Bar {
    fn top(&self) -> f64 {
        self.whisker.unwrap_or(0.0).max(self.height)
    }
}

fn paint_curve<B: DrawingBackend>(curve: &Curve, chart: &mut Chart<'_, B>) -> Drawn<B> {
    let colour = colour(curve.colour);
    let points = || curve.points.iter().copied();
    match curve.look {
        Look::Solid => drop(chart.draw_series(LineSeries::new(points(), colour.stroke_width(2)))?),
        Look::Dashed => drop(chart.draw_series(DashedLineSeries::new(
            points(),
            6,
            4,
            colour.stroke_width(1),
        ))?),
        Look::Dots => {}
    }
    chart.draw_series(points().map(|at| marker(curve.look, colour, at)))?;
    Ok(())
}

fn marker<C>(look: Look, colour: RGBColor, at: C) -> Circle<C, i32> {
    match look {
        Look::Dashed => Circle::new(at, 3, colour.stroke_width(1)),
        Look::Solid => Circle::new(at, 3, colour.filled()),
        Look::Dots => Circle::new(at, 5, colour.stroke_width(2)),
    }
}

fn paint_legend<B: DrawingBackend>(curves: &[Curve], area: &Area<B>, top: i32) -> Drawn<B> {
    let (width, _) = area.dim_in_pixel();
    for (place, curve) in (0..).zip(curves) {
        let left = 36 + (place % 2) * (width as i32 - 36) / 2;
        let y = top + 10 + (place / 2) * LEGEND_LINE;
        let colour = colour(curve.colour);
        let line = |from: i32, to: i32| {
            PathElement::new(
                vec![(left + from, y), (left + to, y)],
                colour.stroke_width(2),
            )
        };
        match curve.look {
            Look::Solid => area.draw(&line(0, 26))?,
            Look::Dashed => [(0, 8), (18, 26)]
                .into_iter()
                .try_for_each(|(from, to)| area.draw(&line(from, to)))?,
            Look::Dots => {}
        }
        area.draw(&marker(curve.look, colour, (left + 13, y)))?;
        write(area, &curve.name, 13, BLACK, (left + 34, y - 8), HPos::Left)?;
    }
    Ok(())
}

fn paint_bars<B: DrawingBackend>(
    bars: &[Bar],
    chart: &mut Chart<'_, B>,
    plot: &Area<B>,
) -> Drawn<B> {
    let (origin, _) = plot.get_pixel_range();
    let corner = plot.get_pixel_range().1.start;
    for (place, bar) in bars.iter().enumerate() {
        let (left, middle) = (place as f64 + 0.16, place as f64 + 0.5);
        let body = [(left, 0.0), (place as f64 + 0.84, bar.height)];
        chart.draw_series([Rectangle::new(body, colour(bar.colour).mix(0.85).filled())])?;
        if let Some(whisker) = bar.whisker {
            let stroke = BLACK.stroke_width(1);
            let across =
                |y: f64| PathElement::new(vec![(middle - 0.1, y), (middle + 0.1, y)], stroke);
            let along = PathElement::new(vec![(middle, whisker), (middle, bar.height)], stroke);
            chart.draw_series([along, across(whisker), across(bar.height)])?;
        }
        let (x, top) = chart.backend_coord(&(middle, bar.top()));
        write(
            plot,
            &short(bar.height),
            11,
            BLACK,
            (x - origin.start, top - corner - 15),
            HPos::Center,
        )?;
        let (x, y) = chart.backend_coord(&(middle, 0.0));
        for (row, line) in (0..).zip(bar.label.lines()) {
            write(
                plot,
                line,
                12,
                BLACK,
                (x - origin.start, y - corner + 6 + 15 * row),
                HPos::Center,
            )?;
        }
    }
    Ok(())
}

/// The first row is at the top.
fn paint_cells<B: DrawingBackend>(
    cells: &Cells,
    chart: &mut Chart<'_, B>,
    plot: &Area<B>,
) -> Drawn<B> {
    let (origin, corner) = (
        plot.get_pixel_range().0.start,
        plot.get_pixel_range().1.start,
    );
    let size = cells.names.len();
    for (row, values) in cells.values.iter().enumerate() {
        let bottom = (size - 1 - row) as f64;
        for (column, value) in values.iter().enumerate() {
            let left = column as f64;
            let body = [(left, bottom), (left + 0.96, bottom + 0.96)];
            let shade = 0.04 + 0.96 * value / cells.most.max(1e-9);
            chart.draw_series([Rectangle::new(body, colour(0).mix(shade).filled())])?;
            if row == column {
                continue;
            }
            let (x, y) = chart.backend_coord(&(left + 0.48, bottom + 0.62));
            let text = if shade > 0.5 { WHITE } else { BLACK };
            let at = (x - origin, y - corner);
            write(plot, &format!("{value:.2}"), 11, text, at, HPos::Center)?;
        }
        let name = &cells.names[row];
        let (x, y) = chart.backend_coord(&(0.0, bottom + 0.62));
        write(
            plot,
            name,
            12,
            BLACK,
            (x - origin - 6, y - corner),
            HPos::Right,
        )?;
        let (x, y) = chart.backend_coord(&(row as f64 + 0.48, 0.0));
        write(
            plot,
            name,
            12,
            BLACK,
            (x - origin, y - corner + 6),
            HPos::Center,
        )?;
    }
    Ok(())
}
