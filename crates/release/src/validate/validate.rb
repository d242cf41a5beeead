require 'erb'
require 'json'
require 'yaml'

def report(path, line, message)
  puts JSON.generate('path' => path, 'line' => line, 'message' => message.scrub)
end

STDIN.read.force_encoding(Encoding::UTF_8).each_line(chomp: true) do |entry|
  syntax, path = entry.split(' ', 2)
  text = File.read(path, encoding: 'UTF-8')
  begin
    if syntax == 'yaml'
      Psych.parse_stream(text)
    else
      # The first line of the source is a comment that ERB adds.
      RubyVM::InstructionSequence.compile(ERB.new(text, trim_mode: '-').src, path, path, 0)
    end
  rescue Psych::SyntaxError => e
    report(path, e.line, [e.problem, e.context].compact.join(' '))
  rescue SyntaxError => e
    found = e.message.lines.map { |line| line.match(/\A#{Regexp.escape(path)}:(\d+): (.*)/) }.compact.first
    found ? report(path, found[1].to_i, found[2]) : report(path, nil, e.message.lines.first.to_s.strip)
  rescue ArgumentError => e
    report(path, nil, e.message)
  end
end
