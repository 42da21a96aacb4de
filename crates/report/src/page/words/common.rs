//! Texts of the page around the papers.

use super::texts;

texts! {
    TITLE: "Writepath: papers reproduced", "Writepath: 논문 재현 보고서";
    HEADLINE: "Papers on the write path, reproduced", "쓰기 경로 논문을 다시 실행한 결과";
    HEADLINE_RUNS: "Results of runs", "실행 결과";
    LEDE: "Every table and figure of {0} papers, reproduced by one deterministic simulator from the system call to the flash page. Each statement of a paper was fixed as a claim before the first run, with the band that counts as a match.",
        "시스템 콜에서 플래시 페이지까지를 하나의 결정론적 프로그램으로 모사하여 논문 {0}편의 모든 표와 그림을 다시 만들었습니다. 논문의 진술은 실행 전에 주장으로 고정하고, 일치로 인정할 허용 범위도 그때 함께 정했습니다.";
    LEDE_RUNS: "Results of runs as tables and figures.", "실행 결과를 표와 그림으로 보인 것입니다.";
    TO_OTHER: "한국어", "영어(English)";
    THEME: "Light / dark", "밝게 / 어둡게";
    SUMMARY: "Verdicts", "판정 요약";
    READING: "How to read this page", "이 페이지를 읽는 법";
    DIFFERENCES: "Differences from the papers, and their reasons", "논문과 다른 것과 그 이유";
    NO_DIFFERENCE: "No claim differs.", "불일치로 판정된 주장이 없습니다.";
    NOT_RUN: "Claims without a value", "여기서 값을 내지 않은 것";
    PAPER: "Paper", "논문";
    OURS: "Ours", "우리 값";
    ALL: "All", "전체";
    CLAIM: "Claim", "주장";
    CLAIMS_OF: "Claims: predictions", "주장: 예측";
    INPUTS_OF: "Inputs: no evidence", "입력: 아무것도 증명하지 않음";
    NO_INPUTS: "No claim of this paper is an input. The inputs are the device profile and the CPU costs; a value without a source is assumed. For the intervals such a value is halved and doubled, or raised by half; a value with an interval of its own takes both ends of it.",
        "이 논문의 주장 가운데 입력으로 쓴 것은 없습니다. 입력은 장치 프로파일과 CPU 비용뿐이며, 출처가 없는 값은 가정입니다. 구간을 구할 때 가정한 값은 절반과 두 배(또는 1.5배)로 바꾸고, 자체 구간이 있는 값은 그 양 끝을 씁니다.";
    INPUTS_ARE: "These numbers of the paper set parameters of the model (device latencies, CPU costs). Reproducing them is no evidence.",
        "논문의 이 값들은 모델의 매개변수(장치 지연, CPU 비용)를 정하는 데 썼습니다. 같은 값이 나온다는 사실은 증거가 되지 않습니다.";
    BAND: "Band", "허용 범위";
    INTERVAL: "interval", "구간";
    NULL: "Null", "귀무 예측";
    VERDICT: "Verdict", "판정";
    PLACE: "Position in the band", "범위 안의 위치";
    PREDICTIONS: "predictions", "예측";
    INPUTS: "inputs", "입력";
    MATCH: "match", "일치";
    DIFFERS: "differs", "불일치";
    FOLLOWS: "follows from inputs", "입력에서 도출됨";
    INCONSISTENT: "paper inconsistent", "논문 자체 모순";
    NOT_MODELLED: "not modelled", "모델 없음";
    MATCH_IS: "our value is inside the band, and stays inside over the interval of each parameter",
        "우리 값이 허용 범위 안에 있고, 각 매개변수의 구간 전체에서 범위를 벗어나지 않습니다";
    DIFFERS_IS: "our value or its interval leaves the band",
        "우리 값 또는 그 구간이 허용 범위를 벗어납니다";
    FOLLOWS_IS: "a closed form of the inputs (the null predictor) is also inside the band and within 3 % of our value: the model adds nothing",
        "입력만으로 계산한 닫힌 식(귀무 예측)도 범위 안에 있고 우리 값과 3 % 이내로 같습니다. 모델이 보탠 것이 없다는 뜻입니다";
    INCONSISTENT_IS: "the paper contradicts itself, its own trace or the kernel source; the evidence is given",
        "논문이 스스로, 또는 자신의 트레이스나 커널 소스와 모순됩니다. 근거를 함께 적습니다";
    NOT_MODELLED_IS: "no value; the reason is given", "값이 없으며 그 이유를 적습니다";
    READ_KINDS: "An input is a number of the paper that sets a parameter; it is no evidence. A prediction is a result of the model. They are counted separately.",
        "입력은 매개변수를 정하는 데 쓴 논문의 값으로, 아무것도 증명하지 않습니다. 예측은 모델을 실행하여 나온 값입니다. 둘은 따로 셉니다.";
    READ_STRIP: "In the column “Position in the band” the shaded part is the band, the dark tick the paper's value, the dot our value, the thin line its interval, and the hollow diamond the null predictor. A triangle at the edge is a value outside the drawn range.",
        "‘범위 안의 위치’ 열에서 음영은 허용 범위, 굵은 눈금은 논문 값, 점은 우리 값, 가는 선은 그 구간, 빈 마름모는 귀무 예측입니다. 가장자리의 삼각형은 그보다 더 벗어난 값입니다.";
    READ_FIGURES: "In figures, dashed ticks and shaded bands are statements of the paper's text; everything else is our result. Point at (or touch) a mark to read its value, click a name in the legend to hide it, and use the switch, where there is one, to change the scale.",
        "그림에서 점선 눈금과 음영은 논문 본문이 진술한 값이고, 나머지는 모두 우리 값입니다. 점에 커서를 올리거나 터치하면 값이 보이고, 범례의 이름을 누르면 숨겨지며, 전환 단추가 있는 그림은 축의 눈금을 바꿀 수 있습니다.";
    READ_SAME: "The same command gives the same bytes on any machine; the hash identifies the results behind this page.",
        "같은 명령은 어느 기계에서나 같은 바이트를 만듭니다. 해시는 이 페이지의 바탕이 된 결과를 가리킵니다.";
    READ_ENGLISH: "Examples and printed tables are verbatim output of the program.",
        "예와 인쇄된 표는 프로그램이 쓰는 영어 그대로 실었습니다.";
    WHY: "why", "이유";
    RULE: "counted", "세는 규칙";
    NULL_IS: "null predictor", "귀무 예측";
    NEEDS: "of the drive's times", "드라이브의 시간 중에서";
    NEEDS_NOTHING: "it needs none to hold", "어느 것도 필요하지 않습니다";
    NEEDS_FLUSH: "it follows from those of the FLUSH alone", "FLUSH의 시간만으로 나옵니다";
    NEEDS_DRIVE: "it needs more than those of the FLUSH", "FLUSH 말고 다른 시간도 필요합니다";
    COMMAND: "Command", "명령";
    HASH: "Result", "결과";
    DIGEST: "SHA-256 of claims.json", "claims.json의 SHA-256";
    RESOLVED: "All settings of the run", "요청한 내용 전체";
    PRINTED: "Tables as printed by the command", "명령이 출력하는 표 그대로";
    QUICK: "A quick run (--quick): fewer and shorter runs, no intervals. Claims that need a full run have no value.",
        "빠른 실행(--quick)입니다. 실행 횟수와 길이를 줄였고 구간은 구하지 않았습니다. 전체 실행이 필요한 주장에는 값이 없습니다.";
    VARIED: "Intervals: each assumed parameter times 0.5 and 1.5, {0} variations, {1} of them impossible machines.",
        "구간: 가정한 매개변수를 각각 절반과 1.5배로 바꾼 {0}가지 변형에서 얻었습니다. 그 가운데 {1}가지는 있을 수 없는 기계입니다.";
    SHOWN_BELOW: "Figures and tables", "그림과 표";
    CSV: "CSV", "CSV 내려받기";
    JSON: "All data as JSON", "모든 데이터(JSON)";
    SCALE_LINEAR: "linear", "선형";
    SCALE_LOG: "log", "로그";
    NUMBERS: "Numbers", "수치";
    LEGEND: "Series; click to hide", "계열(누르면 숨김)";
    FIGURE: "Figure {0}", "그림 {0}";
    FIGURES: "Figures {0}", "그림 {0}";
    TABLE: "Table {0}", "표 {0}";
    GRAPH: "Graph {0}", "그래프 {0}";
    NEW: "New", "추가 실험";
    BESIDE: "Not in the paper", "논문 외";
    CLAIMS_ABOUT: "Claims about it", "관련 주장";
    FILTER: "Show", "보기";
    SEARCH: "search claims", "주장 검색";
    SHOWN: "{0} of {1} shown", "{1}개 중 {0}개 표시";
    SORT: "sort", "정렬";
    RUN: "Run", "실행";
    KEY: "Key", "항목";
    VALUE: "Value", "값";
    POINTS: "Points", "측정점";
    JOBS: "fio jobs", "fio 작업";
    JOB: "Job", "작업";
    JOB_DIRECTION: "Direction", "방향";
    JOB_RATE: "Operations per second", "초당 연산 수";
    JOB_BANDWIDTH: "Bandwidth", "대역폭";
    JOB_LATENCY: "Mean latency", "평균 지연 시간";
    JOB_MEAN: "Mean latency, us", "평균 지연 시간(us)";
    JOB_P99: "99th percentile, us", "99 백분위수(us)";
    JOB_RATED: "rated", "공칭값";
    CHART_OF: "{0} over {1}", "{1}에 따른 {0}";
    RUN_CLAIMS: "Claims of the experiment", "실험의 주장";
    EXPRESSION: "Compared values", "비교하는 값";
    SUMMARY_JSON: "Result", "결과 요약";
    FOOTER: "Made by Writepath {0} from its own results. Uses no network, no fonts, and only the scripts in this file.",
        "Writepath {0}가 자신의 실행 문서로 만든 페이지입니다. 네트워크와 외부 글꼴을 쓰지 않으며, 스크립트는 이 파일 안의 것뿐입니다.";
    CONTENTS: "Contents", "차례";
    TOTAL: "total", "합계";
    MORE_FIGURES: "{0} more combinations have no figure; the table has them.", "나머지 조합 {0}개는 그림이 없으며 표에 있습니다.";
    MORE_ROWS: "The result file has {0} more rows.", "나머지 {0}행은 결과 파일에 있습니다.";
}
