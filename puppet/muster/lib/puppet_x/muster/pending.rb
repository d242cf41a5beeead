# frozen_string_literal: true

require 'json'
require_relative 'run_file'

module PuppetX
  module Muster
    # A run that cannot go on yet. The file tells the agent (a message in a log is no proof), the error ends the
    # compilation, so that nothing at all is applied.
    module Pending
      VARIABLE = 'MUSTER_PENDING_FILE'
      MARK = 'MUSTER-PENDING'

      module_function

      def stop(need, message)
        RunFile.append_line(VARIABLE, JSON.generate(need))
        raise Puppet::ParseError, "#{MARK} #{message}"
      end
    end
  end
end
