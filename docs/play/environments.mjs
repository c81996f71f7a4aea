// Environments for the page that plays the agents: equations of motion, in 64-bit numbers.
// Each has start(random) -> state, step(state, action) -> [state, reward, terminated], observe(state), draw(canvas, state),
// and the limit of an episode's steps, and images a second. `random` gives numbers in [0, 1).

const {PI, sin, cos} = Math;
const clip = (value, low, high) => Math.min(Math.max(value, low), high);
const within = (random, low, high) => low + (high - low) * random();
const wrapped = angle => angle - 2 * PI * Math.floor((angle + PI) / (2 * PI));

function line(canvas, points, colour, width) {
  canvas.strokeStyle = colour;
  canvas.lineWidth = width;
  canvas.lineCap = "round";
  canvas.beginPath();
  points.forEach(([x, y]) => canvas.lineTo(x, y));
  canvas.stroke();
}

function disc(canvas, [x, y], radius, colour) {
  canvas.fillStyle = colour;
  canvas.beginPath();
  canvas.arc(x, y, radius, 0, 2 * PI);
  canvas.fill();
}

// A pole on a cart that is pushed with 10 N to either side (Barto, Sutton and Anderson, 1983).
const cartpole = {
  limit: 500, fps: 50,
  start: random => [0, 0, 0, 0].map(() => within(random, -0.05, 0.05)),
  observe: state => state,
  step([x, speed, angle, spin], action) {
    const gravity = 9.8, pole = 0.1, total = 1.1, half = 0.5, seconds = 0.02, force = action === 1 ? 10 : -10;
    const push = (force + pole * half * spin ** 2 * sin(angle)) / total;
    const twist = (gravity * sin(angle) - cos(angle) * push) / (half * (4 / 3 - pole * cos(angle) ** 2 / total));
    const pull = push - pole * half * twist * cos(angle) / total;
    const state = [x + seconds * speed, speed + seconds * pull, angle + seconds * spin, spin + seconds * twist];
    return [state, 1, Math.abs(state[0]) > 2.4 || Math.abs(state[2]) > 12 * 2 * PI / 360];
  },
  draw(canvas, [x, , angle]) {
    const at = [300 + x * 125, 300];
    line(canvas, [[0, 300], [600, 300]], "gray", 1);
    line(canvas, [[at[0] - 25, at[1]], [at[0] + 25, at[1]]], "black", 30);
    line(canvas, [at, [at[0] + 125 * sin(angle), at[1] - 125 * cos(angle)]], "#ca9865", 10);
  },
};

// A rod on a hinge, with a torque of at most 2 Nm; it costs to hang, to spin and to turn.
const pendulum = {
  limit: 200, fps: 30,
  start: random => [within(random, -PI, PI), within(random, -1, 1)],
  observe: ([angle, spin]) => [cos(angle), sin(angle), spin],
  step([angle, spin], action) {
    const gravity = 10, seconds = 0.05, torque = clip(action, -2, 2);
    const cost = wrapped(angle) ** 2 + 0.1 * spin ** 2 + 0.001 * torque ** 2;
    const faster = clip(spin + (1.5 * gravity * sin(angle) + 3 * torque) * seconds, -8, 8);
    return [[angle + faster * seconds, faster], -cost, false];
  },
  draw(canvas, [angle]) {
    line(canvas, [[300, 200], [300 - 130 * sin(angle), 200 - 130 * cos(angle)]], "#cc4d4d", 26);
    disc(canvas, [300, 200], 6, "black");
  },
};

// A car in a valley whose motor is weaker than gravity (Moore, 1990).
const mountainCar = {
  limit: 200, fps: 30,
  start: random => [within(random, -0.6, -0.4), 0],
  observe: state => state,
  step([x, speed], action) {
    speed = clip(speed + (action - 1) * 0.001 - 0.0025 * cos(3 * x), -0.07, 0.07);
    x = clip(x + speed, -1.2, 0.6);
    if (x === -1.2 && speed < 0) speed = 0;
    return [[x, speed], -1, x >= 0.5 && speed >= 0];
  },
  draw(canvas, [x]) {
    const at = x => [(x + 1.2) / 1.8 * 600, 350 - 150 * (sin(3 * x) * 0.45 + 0.55) * 1.7];
    line(canvas, Array.from({length: 91}, (_, i) => at(-1.2 + i * 0.02)), "gray", 2);
    const [flagX, flagY] = at(0.5), [carX, carY] = at(x);
    line(canvas, [[flagX, flagY], [flagX, flagY - 40]], "green", 3);
    line(canvas, [[flagX, flagY - 35], [flagX + 18, flagY - 35]], "green", 10);
    disc(canvas, [carX, carY - 12], 12, "#4169e1");
  },
};

// Two links, with a torque at the joint between them (Sutton, 1996), integrated by Runge and Kutta's fourth order.
const acrobot = {
  limit: 500, fps: 15,
  start: random => [0, 0, 0, 0].map(() => within(random, -0.1, 0.1)),
  observe: ([a, b, spinA, spinB]) => [cos(a), sin(a), cos(b), sin(b), spinA, spinB],
  step(state, action) {
    const change = ([a, b, spinA, spinB]) => {  // masses, lengths and inertias are 1, centres of mass at 1/2
      const gravity = 9.8, torque = action - 1;
      const d1 = 0.25 + 1.25 + cos(b) + 2, d2 = 0.25 + 0.5 * cos(b) + 1;
      const phi2 = 0.5 * gravity * cos(a + b - PI / 2);
      const phi1 = -0.5 * spinB ** 2 * sin(b) - spinB * spinA * sin(b) + 1.5 * gravity * cos(a - PI / 2) + phi2;
      const twistB = (torque + d2 / d1 * phi1 - 0.5 * spinA ** 2 * sin(b) - phi2) / (1.25 - d2 ** 2 / d1);
      return [spinA, spinB, -(d2 * twistB + phi1) / d1, twistB];
    };
    const seconds = 0.2, ahead = (change, share) => state.map((value, i) => value + share * seconds * change[i]);
    const k1 = change(state), k2 = change(ahead(k1, 0.5)), k3 = change(ahead(k2, 0.5)), k4 = change(ahead(k3, 1));
    let [a, b, spinA, spinB] = ahead(k1.map((value, i) => (value + 2 * k2[i] + 2 * k3[i] + k4[i]) / 6), 1);
    spinA = clip(spinA, -4 * PI, 4 * PI);
    spinB = clip(spinB, -9 * PI, 9 * PI);
    const up = -cos(a) - cos(b + a) > 1;
    return [[wrapped(a), wrapped(b), spinA, spinB], up ? 0 : -1, up];
  },
  draw(canvas, [a, b]) {
    const joint = [300 + 85 * sin(a), 200 + 85 * cos(a)], tip = [joint[0] + 85 * sin(a + b), joint[1] + 85 * cos(a + b)];
    line(canvas, [[0, 115], [600, 115]], "black", 1);
    line(canvas, [[300, 200], joint, tip], "#00aaaa", 16);
    disc(canvas, [300, 200], 7, "#aaaa00");
    disc(canvas, joint, 7, "#aaaa00");
  },
};

export const environments = {"CartPole-v1": cartpole, "Pendulum-v1": pendulum, "MountainCar-v0": mountainCar, "Acrobot-v1": acrobot};
