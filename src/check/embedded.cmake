# What the check layer carries with it: the evidence ledger (data/evidence), and the style and script of HTML reports.
milwright_embed_text(milwright_check check/ledger.h
  ObservationsJson=${CMAKE_SOURCE_DIR}/data/evidence/observations.json
  HypothesesJson=${CMAKE_SOURCE_DIR}/data/evidence/hypotheses.json)
milwright_embed_text(milwright_check check/report_html.h
  ReportCss=${CMAKE_CURRENT_SOURCE_DIR}/check/html/report.css
  ReportJs=${CMAKE_CURRENT_SOURCE_DIR}/check/html/report.js)
